"""Parameters of a sweep: marks on settings, with the values that are worth trying."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

Value = str | int | float | bool  # a value of a parameter
Published = Literal["paper", "code"]
"""What a program is published by: the paper's text, or the authors' code where it says otherwise or more."""


@dataclass(frozen=True)
class Parameter:
    """Marks a field of a settings model, as `Annotated[PositiveInt, Parameter(1, 20)]`, with its range or choices.

    Without them, the values are those of the field's `Literal`, or yes and no for a `bool`; any other field can only be
    turned by a sweep that names values.
    """

    low: float | None = None
    """The least value. Values are whole numbers if both ends are."""
    high: float | None = None
    """The greatest value."""
    step: float | None = None
    """The distance between values; 1 by default for whole numbers."""
    log: bool = False
    """Whether values are spaced on a logarithmic scale."""
    choices: tuple[Value, ...] = ()
    """The values, instead of a range."""

    def __str__(self) -> str:
        if self.low is not None:
            step = f" in steps of {self.step:g}" if self.step else ""
            return f"{self.low:g} to {self.high:g}{step}"
        return ", ".join(map(str, self.choices)) or "no values of its own"


def declared_parameters(model: type[BaseModel], prefix: str = "") -> dict[str, Parameter]:
    """The parameters of a settings model and of the models in it, by the dotted path of their field.

    Example:
        >>> from typing import Annotated
        >>> from pydantic import create_model
        >>> how = Annotated[Literal["bm25", "dense"], Parameter()]
        >>> search = create_model("Search", top_k=(Annotated[int, Parameter(1, 20)], 5), how=(how, "bm25"))
        >>> {name: str(parameter) for name, parameter in declared_parameters(search, "search.").items()}
        {'search.top_k': '1 to 20', 'search.how': 'bm25, dense'}
    """
    parameters: dict[str, Parameter] = {}
    for name, field in model.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, Parameter):
                choices = () if mark.low is not None else mark.choices or tuple(_list_values(field.annotation))
                parameters[f"{prefix}{name}"] = replace(mark, choices=choices)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            parameters |= declared_parameters(field.annotation, f"{prefix}{name}.")
    return parameters


def _list_values(annotation: Any) -> Iterator[Value]:
    if annotation is bool:
        yield from (True, False)
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for part in get_args(annotation):
            yield from _list_values(part)
