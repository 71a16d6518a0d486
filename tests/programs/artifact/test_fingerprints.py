from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import dspy
import pytest
from pydantic import BaseModel, Field, RootModel, ValidationError

from typedrag.programs.artifact.compiled import uncompiled
from typedrag.programs.artifact.fingerprints import SHAPES, shape_changes, shape_of, type_text
from typedrag.programs.artifact.state import shapes_of
from typedrag.records import Reference
from typedrag.signatures import DecomposeReason


class Colour(Enum):
    RED = 1
    BLUE = "blue"


class Tree(BaseModel):
    label: str
    branches: list[Tree] = Field(default_factory=list)


class Few(RootModel[list[str]]):
    root: Annotated[list[Annotated[str, Field(max_length=3)]], Field(max_length=2)]


@dataclass
class Point:
    x: float
    y: Colour | None = None


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (str, "str"),
        (Any, "Any"),
        (list[str], "list[str]"),
        (Sequence[int], "Sequence[int]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (dict[str, list[bool]], "dict[str, list[bool]]"),
        (Literal["b", "a", 1], '"a" | "b" | 1'),
        (Literal["1"], '"1"'),
        (Optional[int], "int | null"),  # noqa: UP045
        (int | None, "int | null"),
        (None | int, "int | null"),
        (Annotated[int, Field(ge=1)], "int"),
        (Colour, '"blue" | 1'),
        (Few, "list[str]"),
        (Tree, "{label: str, branches: list[...]}"),
        (Point, '{x: float, y: "blue" | 1 | null}'),
        (Reference, "{text: str, label: int}"),
    ],
)
def test_types_as_text(annotation, text):
    assert type_text(annotation) == text


BEFORE = shape_of(dspy.Signature("question: str, passages: list[str] -> citations: list[int], answer: str"))


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        ("question: str, passages: list[str] -> citations: list[int], answer: str", []),
        ("question: str -> citations: list[int], answer: str", ["input 'passages' is gone"]),
        (
            "question: str, passages: list[str] -> citations: list[int], answer: str, sure: bool",
            ["output 'sure' is new"],
        ),
        (
            "question: str, passages: list[str] -> citations: list[str], answer: str",
            ["the type of output 'citations' was list[int] and is list[str]"],
        ),
        (
            "passages: list[str], question: str -> citations: list[int], answer: str",
            [
                "the order of its fields was question, passages, citations, answer"
                " and is passages, question, citations, answer"
            ],
        ),
        (
            "question: str, passages: list[str], citations: list[int] -> answer: str",
            ["'citations' was an output and is an input"],
        ),
    ],
)
def test_changes_are_named(now, changes):
    assert list(shape_changes(BEFORE, shape_of(dspy.Signature(now)))) == changes


def test_instructions_and_descriptions_have_no_part_in_a_shape():
    other = DecomposeReason.with_instructions("Ask.").with_updated_fields("question", desc="it", prefix="Q:")
    assert shape_of(other) == shape_of(DecomposeReason)


def test_shapes_survive_json_and_nothing_else_passes_for_them():
    shapes = shapes_of(uncompiled("typed_rag"))
    assert SHAPES.validate_json(SHAPES.dump_json(shapes)) == shapes
    for name in ("a\x1b[31m", "a\nb", ""):
        with pytest.raises(ValidationError):
            SHAPES.validate_python({"p": [{"name": name, "role": "input", "type": "str"}]})
    with pytest.raises(ValidationError):
        SHAPES.validate_python({"p": [{"name": "a", "role": "input", "type": "str", "default": "x"}]})
