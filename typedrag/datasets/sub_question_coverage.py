"""The datasets of sub-question coverage: people's labels of sub-questions, and Researchy Questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from typedrag.core.question_types import SubQuestionType
from typedrag.datasets.dataset import Dataset, build_dataset, example, given_path, make_id
from typedrag.datasets.reading import Entry, Id, Layout, Text, hub_rows, misfit, parse, read_subsets

if TYPE_CHECKING:
    import dspy

_NO_HOME = ("the labels of sub-questions have no home on the hub", "Name a copy: --path")


class _Typed(Layout):
    question: Text
    sub_question: Text
    labels: list[Annotated[SubQuestionType, Field(strict=False)]] = Field(min_length=1)


def load_sub_question_types(path: Path | None = None) -> Dataset:
    """Read the types that people gave to sub-questions: a file types.jsonl, or its folder.

    An example is a sub-question: `sub_question`, the `question` it belongs to, and `annotated_types`, the
    `SubQuestionType` that each annotator chose (`labels`), in the order of the source.
    """

    def to_example(entry: Entry) -> dspy.Example:
        row = parse(_Typed, entry)
        known = {"question": row.question, "sub_question": row.sub_question, "annotated_types": tuple(row.labels)}
        return example(id=make_id(row.question, row.sub_question), **known)

    rows = read_subsets(given_path(path, *_NO_HOME), {"types": ("types.jsonl",)})
    return build_dataset("sub-question-types", rows, to_example, source=str(path))


class _Judged(Layout):
    question: Text
    sub_question: Text
    answer: Text
    engine: str
    covered: bool
    fragment: str | None


def load_sub_question_coverage(path: Path | None = None) -> Dataset:
    """Read people's judgments of coverage: a file coverage.jsonl, or its folder.

    An example is an answer with a sub-question: `question`, `answer`, `sub_question`, the truth value `covered`, and
    the `fragment` of the answer that covers it, empty if none does. Its subset is the `engine` that answered.
    """

    def to_example(entry: Entry) -> dspy.Example:
        row = parse(_Judged, entry)
        if row.covered != bool(row.fragment):
            raise misfit(entry.place, "it is covered without a fragment, or has one without being covered")
        return example(
            id=make_id(row.question, row.engine, row.answer, row.sub_question),
            question=row.question,
            subset=row.engine,
            answer=row.answer,
            sub_question=row.sub_question,
            covered=row.covered,
            fragment=row.fragment or "",
        )

    rows = read_subsets(given_path(path, *_NO_HOME), {"coverage": ("coverage.jsonl",)})
    return build_dataset("sub-question-coverage", rows, to_example, source=str(path))


RESEARCHY_FILES = {part: (f"researchy_questions.{part}.jsonl", f"{part}.jsonl") for part in ("train", "test")}
RESEARCHY_HUB = "corbyrosset/researchy_questions"


class _Clicked(Layout):
    document: Id = Field(validation_alias="CluewebURLHash")


class _ResearchyRow(Layout):
    id: Id
    question: Text
    documents: list[_Clicked] = Field(default=[], validation_alias="DocStream")


def load_researchy_questions(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read Researchy Questions, from `researchy_questions.train.jsonl` or `.test.jsonl`, their folder, or the hub.

    `passage_ids` are the ClueWeb22 documents that users clicked; `subset` is the authors' own split.
    """

    def to_example(entry: Entry) -> dspy.Example:
        row = parse(_ResearchyRow, entry)
        documents = tuple(dict.fromkeys(clicked.document for clicked in row.documents))
        return example(id=row.id, question=row.question, subset=entry.subset, passage_ids=documents)

    if path:
        rows = read_subsets(path, RESEARCHY_FILES, subset)
    else:
        splits, columns = {part: part for part in RESEARCHY_FILES}, ("id", "question", "DocStream")
        rows = hub_rows(RESEARCHY_HUB, splits, subset=subset, columns=columns)
    return build_dataset("researchy-questions", rows, to_example, source=str(path or RESEARCHY_HUB))
