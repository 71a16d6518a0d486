"""Right answers beside answers that only sound right, to test whether a judge tells them apart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import dspy
from pydantic import Field

from typedrag.core.errors import InputError
from typedrag.core.records import Reference, SubQuestion
from typedrag.datasets.dataset import Dataset, build_dataset, example, source
from typedrag.datasets.reading import Entry, Id, Layout, ReferenceRow, SubQuestionRow, Text, misfit, parse, read_rows

FABRICATIONS = "fabrications"


class AnswerKind(StrEnum):
    """The kind of an answer that was made for a test."""

    RIGHT = "right"
    GUESSED = "guessed"
    """Written by an LM that knows only the question, and not right."""
    EXCHANGED = "exchanged"
    """The right answer with another question's name, date or number in place of its own."""
    FALSIFIED = "falsified"
    """The right answer with an LM's likeliest wrong name, date, number or cause in place of its own."""
    OFF_SUBJECT = "off-subject"
    """The right answer to another question."""
    NOTHING_FOUND = "nothing-found"
    """An answer which says that nothing was found."""

    @property
    def fabricated(self) -> bool:
        """True if it makes a false claim on the subject."""
        return self in (AnswerKind.GUESSED, AnswerKind.EXCHANGED, AnswerKind.FALSIFIED)


@dataclass(frozen=True, slots=True)
class MadeAnswer:
    """An answer that was made for a test, with its kind."""

    kind: AnswerKind
    text: str


class _Candidate(Layout):
    kind: Annotated[AnswerKind, Field(strict=False)]
    text: Text


class _Row(Layout):
    id: Id
    question: Text
    answers: list[Text] = Field(min_length=1)
    candidates: list[_Candidate] = Field(min_length=2)
    references: list[ReferenceRow] = Field(default=[])
    sub_questions: list[SubQuestionRow] = Field(default=[])
    subset: Text | None = None


@source(
    FABRICATIONS,
    about="a right answer and fabrications to each question, made by `typedrag datasets build fabrications`",
    licence="that of what it was made from",
    home="",
)
def load_fabrications(path: Path | None = None) -> Dataset:
    """Read the fabrications that a builder made.

    An example's `candidates` are `MadeAnswer`s, the right one first; `answers` are the short gold answers, and
    `references` those of the question's own dataset. `sub_questions` are those of the row, if it has any.
    """
    if path is None:
        raise InputError("fabrications are read from a file", "Build them: typedrag datasets build fabrications")
    return build_dataset(FABRICATIONS, read_rows(path), _example, source=str(path))


def _example(entry: Entry) -> dspy.Example:
    row = parse(_Row, entry)
    if row.candidates[0].kind is not AnswerKind.RIGHT:
        raise misfit(entry.place, "its first candidate is not the right one")
    sub_questions = tuple(SubQuestion(s.text, s.type) for s in row.sub_questions)
    return example(
        id=row.id,
        question=row.question,
        answers=tuple(row.answers),
        candidates=tuple(MadeAnswer(c.kind, c.text) for c in row.candidates),
        references=tuple(Reference(r.text, r.label) for r in row.references),
        **({"sub_questions": sub_questions} if sub_questions else {}),
        **({"subset": row.subset} if row.subset else {}),
    )
