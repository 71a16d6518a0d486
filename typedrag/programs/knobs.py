"""Knobs: marks on settings that a sweep may turn, with the values that are worth trying."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

Value = str | int | float | bool
"""A value of a knob."""


@dataclass(frozen=True)
class Knob:
    """Marks a field of a settings model, as `Annotated[PositiveInt, Knob(1, 20)]`.

    Without a range or choices, the values are those of the field's `Literal`, or yes and no for a `bool`;
    any other field can only be turned by a sweep that names values.

    Attributes:
        low: Least value. Values are whole numbers if both ends are.
        high: Greatest value.
        step: Distance between values; 1 by default for whole numbers.
        log: Whether values are spaced on a logarithmic scale.
        choices: The values, instead of a range.
    """

    low: float | None = None
    high: float | None = None
    step: float | None = None
    log: bool = False
    choices: tuple[Value, ...] = ()

    def __str__(self) -> str:
        if self.low is not None:
            step = f" in steps of {self.step:g}" if self.step else ""
            return f"{self.low:g} to {self.high:g}{step}"
        return ", ".join(map(str, self.choices)) or "no values of its own"


def declared_knobs(model: type[BaseModel], prefix: str = "") -> dict[str, Knob]:
    """The knobs of a settings model and of the models in it, by the dotted path of their field.

    Example:
        >>> from typing import Annotated
        >>> from pydantic import create_model
        >>> how = Annotated[Literal["bm25", "dense"], Knob()]
        >>> search = create_model("Search", top_k=(Annotated[int, Knob(1, 20)], 5), how=(how, "bm25"))
        >>> {name: str(knob) for name, knob in declared_knobs(search, "search.").items()}
        {'search.top_k': '1 to 20', 'search.how': 'bm25, dense'}
    """
    return dict(_knobs(model, prefix))


def _knobs(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, Knob]]:
    for name, field in model.model_fields.items():
        annotation = field.annotation
        for mark in field.metadata:
            if isinstance(mark, Knob):
                choices = () if mark.low is not None else mark.choices or tuple(_values(annotation))
                yield f"{prefix}{name}", replace(mark, choices=choices)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _knobs(annotation, f"{prefix}{name}.")


def _values(annotation: Any) -> Iterator[Value]:
    if annotation is bool:
        yield from (True, False)
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for part in get_args(annotation):
            yield from _values(part)
