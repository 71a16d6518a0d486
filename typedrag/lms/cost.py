"""The calls, tokens and cost of LMs, counted as the calls are made, and the user's own prices for them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from typedrag.core.errors import InputError
from typedrag.core.records import Usage
from typedrag.files.text_files import parse_yaml

if TYPE_CHECKING:
    import dspy

LEDGER = "spending.jsonl"  # the file in which a compile keeps what it spends, a line for each LM call
PRICES = "TYPEDRAG_PRICES"  # the environment variable that names the file of prices

_TRACKERS = "typedrag_cost_trackers"
"""A key of DSPy's settings, which reach threads that carry the context, and also those that DSPy makes, which
carry nothing else."""
_MILLION = 1_000_000
_OWN_LMS = re.compile(r"^(vllm|vllm-offline|embedded):")

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """The price of an LM, in dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: Dollars
    """The price of tokens that it reads."""
    completion: Dollars
    """The price of tokens that it writes."""

    def of(self, usage: Usage) -> float:
        """The price of these tokens, in dollars."""
        return (usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion) / _MILLION


_PRICES = TypeAdapter(dict[str, Price])
_specs: dict[str, tuple[str, ...]] = {}
_given: Mapping[str, Price] | None = None


def find_price(model: str) -> Price | None:
    """The user's price of a model `PROVIDER/MODEL`, with or without the provider, or of the specs that open it."""
    prices = read_prices()
    names = (model, model.partition("/")[2], *_specs.get(model, ()))
    return next((prices[name] for name in names if name in prices), None)


def register_specs(model: str, specs: Iterable[str]) -> None:
    """Look up the price of a model by these specs too: that of an embedded LM or an adapter does not hold its name."""
    _specs[model] = tuple(_OWN_LMS.sub("", spec) for spec in specs)


def read_prices() -> Mapping[str, Price]:
    """The prices of `use_prices`, else those of the file that `TYPEDRAG_PRICES` names, by model; empty without one."""
    if _given is not None:
        return _given
    file = os.environ.get(PRICES)
    return _read(Path(file).expanduser()) if file else {}


def use_prices(prices: Mapping[str, Price]) -> None:
    global _given
    _given = prices


@cache
def _read(file: Path) -> Mapping[str, Price]:
    hint = f"{PRICES} names a YAML file with lines as MODEL: {{prompt: 0.5, completion: 1.5}}"
    try:
        prices = _PRICES.validate_python(parse_yaml(file.read_text("utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise InputError(f"{file}: {place} is no price: {first['msg']}", hint) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read ({error})", hint) from None
    return {_OWN_LMS.sub("", spec): price for spec, price in prices.items()}


@dataclass(frozen=True)
class Spending:
    """LM calls and tokens, and their price in dollars by the user's prices, else by LiteLLM's.

    Calls whose replies were kept are not counted. Those whose price neither knows, such as of one's own server, are
    `unpriced`.

    Example:
        >>> Spending(Usage(1, 10, 5), dollars=0.25) + Spending(Usage(2, 20, 5), unpriced=2)
        Spending(usage=Usage(lm_calls=3, prompt_tokens=30, completion_tokens=10, uncounted=0), dollars=0.25, unpriced=2)
    """

    usage: Usage = field(default_factory=Usage)
    dollars: float = 0.0
    unpriced: int = 0

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.usage + other.usage, self.dollars + other.dollars, self.unpriced + other.unpriced)

    @property
    def tokens(self) -> int:
        return self.usage.prompt_tokens + self.usage.completion_tokens

    @property
    def cost(self) -> float | None:
        """The cost in dollars; None if no call's price is known."""
        return self.dollars if self.unpriced < self.usage.lm_calls else None

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of MLflow, of evaluations, compiles and sweeps alike; no cost where no price is known."""
        usage = self.usage
        counts = {"lm_calls": usage.lm_calls, "tokens": self.tokens, "prompt_tokens": usage.prompt_tokens}
        counts |= {"completion_tokens": usage.completion_tokens} | ({"uncounted": n} if (n := usage.uncounted) else {})
        cost = {} if self.cost is None else {"cost": self.cost, "unpriced": float(self.unpriced)}
        return {f"spent/{name}": value for name, value in {**counts, **cost}.items()}

    def times(self, factor: float) -> Spending:
        usage = Usage(**{name: round(value * factor) for name, value in asdict(self.usage).items()})
        return Spending(usage, self.dollars * factor, round(self.unpriced * factor))

    def priced(self, price: Price) -> Spending:
        """The same, with a price for the calls without one that report tokens: a share as of the calls."""
        if not self.unpriced:
            return self
        share = self.unpriced / self.usage.lm_calls
        left = min(self.unpriced, self.usage.uncounted)
        return Spending(self.usage, self.dollars + share * price.of(self.usage), left)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self.usage), "dollars": self.dollars, "unpriced": self.unpriced}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Spending:
        usage = Usage(data["lm_calls"], data["prompt_tokens"], data["completion_tokens"], data.get("uncounted", 0))
        return cls(usage, data["dollars"], data["unpriced"])


def format_dollars(amount: float) -> str:
    """An amount with cents, or with two digits where it is small.

    Example:
        >>> format_dollars(1234.5), format_dollars(0.00213), format_dollars(0)
        ('$1,234.50', '$0.0021', '$0.00')
    """
    if amount >= 0.1 or not amount:
        return f"${amount:,.2f}"
    return "$" + f"{float(f'{amount:.2g}'):.12f}".rstrip("0")


class CostTracker:
    """A sum of spending that many threads add to; `listener` is called with each addition."""

    def __init__(
        self, spent: Spending | None = None, listener: Callable[[Spending], object] = lambda spent: None
    ) -> None:
        self._spent, self._listener = spent or Spending(), listener
        self._lock = threading.Lock()

    def add(self, spending: Spending) -> None:
        with self._lock:
            self._spent += spending
        self._listener(spending)

    @property
    def spent(self) -> Spending:
        with self._lock:
            return self._spent


@contextmanager
def track_cost(tracker: CostTracker) -> Iterator[CostTracker]:
    """Add the spending within to this tracker and to those around it, of LMs that `track_calls` or `open_lm` made.

    Calls of threads that carry the context count too, and so do those of `dspy.Evaluate` and `dspy.Parallel`.
    """
    import dspy  # not above: reading a run does without

    with dspy.context(**{_TRACKERS: (*dspy.settings.get(_TRACKERS, ()), tracker)}):
        yield tracker


def track_calls(lm: dspy.LM) -> dspy.LM:
    """The LM, changed so that its calls are charged; those of `open_lm` charge themselves.

    Of others DSPy tells a call's cost only where it writes the history, which is then not kept: it would hold thousands
    of prompts.
    """

    def charge_uncached(call: Mapping[str, Any]) -> None:
        if call["usage"]:  # else a cache answered; DSPy does not tell this from a server that reports no tokens
            charge_call(call)

    lm.update_history = (lambda call: None) if getattr(lm.engine, "counts", False) else charge_uncached
    return lm


def charge_call(call: Mapping[str, Any]) -> None:
    """Charge a call that was made, an entry of DSPy's call history."""
    replies = call["response"]
    calls = max(1, len(replies)) if isinstance(replies, list | tuple) else 1  # one each of several requested at once
    usage = Usage.of_call(call["usage"] or {}, calls)
    price = None if usage.uncounted else find_price(call["model"])
    cost = price.of(usage) if price else call["cost"]
    charge(Spending(usage, cost or 0.0, unpriced=calls * int(cost is None)))


def charge(spending: Spending) -> None:
    import dspy

    for tracker in dspy.settings.get(_TRACKERS, ()):
        tracker.add(spending)
