"""Answers that are known to be better than others: by people, or as they were made for a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from typedrag.core.errors import InputError
from typedrag.core.records import Reference, SubQuestion
from typedrag.datasets import reading
from typedrag.datasets.dataset import Dataset, build_dataset, example, given_path, make_id
from typedrag.datasets.reading import Entry, Id, Layout, ReferenceRow, SubQuestionRow, Text, misfit, parse, read_rows
from typedrag.text.words import split_words

if TYPE_CHECKING:
    import dspy

WEBGPT_HOME = "https://openaipublic.blob.core.windows.net/webgpt-answer-viewer/comparisons.jsonl"
_TIE = "a tie: people prefer neither answer"


class _WebGptQuestion(Layout):
    dataset: str
    id: str
    full_text: Text


class _WebGptRow(Layout):
    question: _WebGptQuestion
    answer_0: Text
    answer_1: Text
    score_0: float
    score_1: float


def load_webgpt(
    path: Path | None = None, subset: str | None = None, first_words: str = "", least_words: int = 0
) -> Dataset:
    """Read the WebGPT comparisons.

    An example is a comparison: `answers_compared` are its two answers; `preference`, from -1 to 1, is above 0
    if people prefer the first, below 0 if they prefer the second. Its subset is the dataset that the question
    comes from. Ties are left out, as in section 4 of the sub-question paper, which has the questions that begin
    with why or how and have long answers.

    Args:
        path: The authors' comparisons.jsonl, where a line is a list of two records, or the hub's
            rows as JSONL, where the records' fields end in _0 and _1; or the folder.
        first_words: Only questions that begin with one of these words, such as `why,how`; by default all.
        least_words: The fewest words that both answers have.
    """
    file = reading.find_files(path, {"webgpt": ("comparisons.jsonl",)})[0][1] if path else reading.download(WEBGPT_HOME)
    dataset = build_dataset("webgpt", _comparisons(file), _webgpt_example, source=str(path or WEBGPT_HOME))
    subsets = reading.choose_subsets(sorted({example.subset for example in dataset.examples}), subset)
    begins = {word.strip().lower() for word in first_words.split(",") if word.strip()}

    def is_wanted(example: dspy.Example) -> bool:
        return (
            example.subset in subsets
            and (not begins or next(iter(split_words(example.question)), "") in begins)
            and (not least_words or all(len(split_words(a)) >= least_words for a in example.answers_compared))
        )

    examples = tuple(filter(is_wanted, dataset.examples))
    if not examples:
        raise InputError(
            f"none of the {len(dataset.examples)} comparisons of {dataset.source} is of this kind",
            "Name other first_words, a lower least_words or another subset",
        )
    return replace(dataset, examples=examples)


def _comparisons(file: Path) -> Iterator[Entry]:
    """Yield the rows in the hub's layout: the two records of a line as one row."""
    for entry in read_rows(file, kind=".jsonl"):
        records = entry.value
        if not isinstance(records, list):
            yield entry
            continue
        if len(records) != 2 or not all(isinstance(record, dict) for record in records):
            raise misfit(entry.place, "it is no list of two records")
        if records[0].get("question") != records[1].get("question"):
            raise misfit(entry.place, "its two records have different questions")
        fields = {f"{name}_{n}": value for n, record in enumerate(records) for name, value in record.items()}
        yield entry._replace(value={"question": records[0].get("question"), **fields})


def _webgpt_example(entry: Entry) -> dspy.Example | str:
    row = parse(_WebGptRow, entry)
    if row.score_0 != -row.score_1:
        raise misfit(entry.place, f"its scores {row.score_0} and {row.score_1} do not sum to 0")
    if row.score_0 == 0:
        return _TIE
    return example(
        id=make_id(row.question.dataset, row.question.id, row.answer_0, row.answer_1),
        question=row.question.full_text,
        subset=row.question.dataset,
        answers_compared=(row.answer_0, row.answer_1),
        preference=row.score_0,
    )


class _PairsRow(Layout):
    question: Text
    first: Text
    second: Text
    preference: float
    id: Id | None = None
    subset: Text | None = None


def load_pairs(path: Path | None = None, fields: Mapping[str, str] | None = None) -> Dataset:
    """Read pairs of answers.

    An example is like one of `webgpt`: `answers_compared` are its two answers; `preference` is above 0 if
    people prefer the first, below 0 if they prefer the second. Ties are left out.

    Args:
        path: A .jsonl or .json file whose rows have `question`, `first`, `second` and `preference`, and perhaps
            `id` and `subset`.
        fields: The names of fields in the file, as {"first": "answer_a"}; fields not named are called as above.
    """
    file = given_path(path, "dataset 'pairs' is read from a file")

    def to_example(entry: Entry) -> dspy.Example | str:
        named = reading.renamed(entry, tuple(_PairsRow.model_fields), fields or {})
        if isinstance(named["preference"], int) and not isinstance(named["preference"], bool):
            named["preference"] = float(named["preference"])
        row = parse(_PairsRow, entry._replace(value={k: value for k, value in named.items() if value is not None}))
        if row.preference == 0:
            return _TIE
        known = {"answers_compared": (row.first, row.second), "preference": row.preference}
        known |= {"subset": row.subset} if row.subset else {}
        return example(id=row.id or make_id(row.question, row.first, row.second), question=row.question, **known)

    return build_dataset("pairs", read_rows(file), to_example, source=str(file))


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
    kind: AnswerKind
    text: str


class _Candidate(Layout):
    kind: Annotated[AnswerKind, Field(strict=False)]
    text: Text


class _FabricationsRow(Layout):
    id: Id
    question: Text
    answers: list[Text] = Field(min_length=1)
    candidates: list[_Candidate] = Field(min_length=2)
    references: list[ReferenceRow] = Field(default=[])
    sub_questions: list[SubQuestionRow] = Field(default=[])
    subset: Text | None = None


def load_fabrications(path: Path | None = None) -> Dataset:
    """Read the fabrications that a builder made. An example's `candidates` are `MadeAnswer`s, the right one first."""
    file = given_path(path, "fabrications are read from a file", "Build them: typedrag datasets build fabrications")

    def to_example(entry: Entry) -> dspy.Example:
        row = parse(_FabricationsRow, entry)
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

    return build_dataset(FABRICATIONS, read_rows(file), to_example, source=str(file))
