"""The shapes of signatures: names, types and order of their fields, as text that is stable across versions.

Demonstrations and descriptions are saved by the position and name of their field. If a field were
added, removed, moved or given another type since, they would silently be used for another field.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import dspy
from pydantic import BaseModel, ConfigDict, RootModel, StringConstraints, TypeAdapter

Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
"""A text that is safe in a message: without control characters, which a stranger's file might hold."""


@dataclass(frozen=True)
class FieldShape:
    """A field of a signature, without its description.

    Attributes:
        name: The name of the field.
        role: `input` or `output`.
        type: Its type, as `type_text` writes it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: Line
    role: Literal["input", "output"]
    type: Line


Shape: TypeAlias = tuple[FieldShape, ...]
"""The fields of a signature, in the order of its prompt."""

SHAPES = TypeAdapter(dict[str, Shape])
"""The shapes of a module's predictors, by name."""


def shape_of(signature: type[dspy.Signature]) -> Shape:
    """The shape of a signature, which leaves out its instructions and descriptions.

    Example:
        >>> shape_of(dspy.Signature("question: str, k: int -> titles: list[str]"))[2]
        FieldShape(name='titles', role='output', type='list[str]')
    """
    return tuple(
        FieldShape(name, "input" if name in signature.input_fields else "output", type_text(field.annotation))
        for name, field in signature.fields.items()
    )


def shape_changes(before: Shape, now: Shape) -> Iterator[str]:
    """The differences between two shapes, a line each.

    Example:
        >>> before = shape_of(dspy.Signature("question, passages -> answer"))
        >>> now = shape_of(dspy.Signature("question, language -> answer: list[str]"))
        >>> list(shape_changes(before, now))  # doctest: +NORMALIZE_WHITESPACE
        ["input 'passages' is gone", "input 'language' is new",
         "the type of output 'answer' was str and is list[str]"]
    """
    had, has = ({field.name: field for field in shape} for shape in (before, now))
    yield from (f"{had[name].role} '{name}' is gone" for name in had if name not in has)
    yield from (f"{has[name].role} '{name}' is new" for name in has if name not in had)
    shared = [name for name in had if name in has]
    for name in shared:
        if had[name].role != has[name].role:
            yield f"'{name}' was an {had[name].role} and is an {has[name].role}"
        if had[name].type != has[name].type:
            yield f"the type of {has[name].role} '{name}' was {had[name].type} and is {has[name].type}"
    order = [name for name in has if name in had]
    if order != shared:
        yield f"the order of its fields was {', '.join(shared)} and is {', '.join(order)}"


def type_text(annotation: Any) -> str:
    """A type described by its values in JSON: types that look the same in a prompt have the same text.

    Names of models and enums are left out, as are limits on lengths and ranges, which each
    demonstration is checked against by itself.

    Example:
        >>> from typedrag.question_types import SubQuestionType
        >>> from typedrag.signatures.fields import PromptPassage, SubQueries
        >>> type_text(SubQueries), type_text(list[PromptPassage]), type_text(int | None)
        ('list[str]', 'list[{number: int, title: str, text: str}]', 'int | null')
        >>> type_text(SubQuestionType)
        '"background" | "core" | "follow-up"'
    """
    return _text(annotation, ())


def _text(annotation: Any, around: tuple[Any, ...]) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is NoneType:
        return "null"
    if annotation in around:  # a model that holds itself
        return "..."
    if origin is Annotated:
        return _text(arguments[0], around)
    if origin is Literal:
        return _either(_value(choice) for choice in arguments)
    if origin in (Union, UnionType):
        return _either(_text(choice, around) for choice in arguments)
    if origin is not None:
        inner = ", ".join("..." if a is Ellipsis else _text(a, around) for a in arguments)
        return f"{_name(origin)}[{inner}]"
    if isinstance(annotation, type):
        around = (*around, annotation)
        if issubclass(annotation, Enum):
            return _either(_value(member) for member in annotation)
        if issubclass(annotation, RootModel):
            return _text(annotation.model_fields["root"].annotation, around)
        if issubclass(annotation, BaseModel):
            fields = annotation.model_fields
            return _record({n: f.annotation for n, f in fields.items()}, around)
        if dataclasses.is_dataclass(annotation):
            hints = get_type_hints(annotation)
            return _record({f.name: hints[f.name] for f in dataclasses.fields(annotation)}, around)
    return _name(annotation)


def _record(fields: Mapping[str, Any], around: tuple[Any, ...]) -> str:
    return f"{{{', '.join(f'{name}: {_text(annotation, around)}' for name, annotation in fields.items())}}}"


def _either(texts: Iterator[str]) -> str:
    return " | ".join(sorted(set(texts)))


def _value(choice: Any) -> str:
    return json.dumps(choice.value if isinstance(choice, Enum) else choice, ensure_ascii=False)


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
