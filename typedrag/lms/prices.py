"""The user's own prices, for LMs whose price LiteLLM's table lacks or has wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from typedrag.errors import InputError
from typedrag.records import Usage

PRICES = "TYPEDRAG_PRICES"
"""The environment variable that names the file of prices."""
_MILLION = 1_000_000
_OF_OWN_LMS = re.compile(r"^(vllm|vllm-offline|embedded):")

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """The price of an LM, in dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: Dollars
    """The price of tokens that it reads."""
    completion: Dollars
    """The price of tokens that it writes."""

    def of(self, usage: Usage) -> float:
        """The price of these tokens, in dollars.

        Example:
            >>> Price(prompt=0.5, completion=1.5).of(Usage(3, 1_000_000, 2_000_000))
            3.5
        """
        return (usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion) / _MILLION


_TABLE = TypeAdapter(dict[str, Price])
_specs: dict[str, tuple[str, ...]] = {}
_given: Mapping[str, Price] | None = None


def own_price(model: str) -> Price | None:
    """The user's price of a model `PROVIDER/MODEL`, looked up with and without the provider, then by the specs that
    open it; None if there is none.

    Raises:
        InputError: See `own_prices`.
    """
    prices = own_prices()
    names = (model, model.partition("/")[2], *_specs.get(model, ()))
    return next((prices[name] for name in names if name in prices), None)


def note_specs(model: str, specs: Iterable[str]) -> None:
    """Look up the price of a model by these specs too: that of an embedded LM or an adapter does not hold its name."""
    _specs[model] = tuple(_OF_OWN_LMS.sub("", spec) for spec in specs)


def own_prices() -> Mapping[str, Price]:
    """The prices of `use_prices`, else those of the file that `TYPEDRAG_PRICES` names, by model; empty without one.

    Raises:
        InputError: If the file cannot be read, or holds something else.
    """
    if _given is not None:
        return _given
    file = os.environ.get(PRICES)
    return _read(Path(file).expanduser()) if file else {}


def use_prices(prices: Mapping[str, Price]) -> None:
    """Count by these prices in the whole process, whatever its environment says."""
    global _given
    _given = prices


@cache
def _read(file: Path) -> Mapping[str, Price]:
    import yaml

    mend = f"{PRICES} names a YAML file with lines as MODEL: {{prompt: 0.5, completion: 1.5}}"
    try:
        table = _TABLE.validate_python(yaml.safe_load(file.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{file} cannot be read ({type(error).__name__})", mend) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise InputError(f"{file}: {place} is no price: {first['msg']}", mend) from None
    return {_OF_OWN_LMS.sub("", spec): price for spec, price in table.items()}
