"""The datasets of HANRAG: Adaptive-RAG's questions, compound ones, and those for each role of the revelator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from typedrag.core.question_types import RevelatorRole, Route
from typedrag.datasets import reading
from typedrag.datasets.dataset import SPLITS, Dataset, build_dataset, example, given_path, given_splits
from typedrag.datasets.reading import Entry, Id, Layout, Text, choose_subsets, misfit, parse, read_rows

if TYPE_CHECKING:
    import dspy

COMPOUND = "compound"


class _CompoundRow(Layout):
    id: Id
    subset: Text
    entity: Text
    question: Text
    answers: list[Text] = Field(min_length=1)
    sub_queries: list[Text] = Field(min_length=2)
    sub_answers: list[Text]
    passage_ids: list[Id] = Field(default=[])


def load_compound(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read the compound questions that a builder made.

    `answers` holds one gold answer, its entities separated by ` && ` (HANRAG, table 8);
    `sub_queries` and `sub_answers` are the questions that it was joined from, in their order; `route` is
    compound; `entity` is the entity of all of them. No entity is in two subsets.
    """
    file = given_path(path, "compound questions are read from a file", "Build one: typedrag datasets build compound")
    subsets = choose_subsets(SPLITS, subset)

    def to_example(entry: Entry) -> dspy.Example | str:
        row = parse(_CompoundRow, entry)
        queries, answers = len(row.sub_queries), len(row.sub_answers)
        if queries != answers:
            raise misfit(entry.place, f"it has {queries} sub_queries and {answers} sub_answers")
        if row.subset not in subsets:
            return f"it is of subset {row.subset}"
        known = {name: tuple(v) if isinstance(v, list) else v for name, v in row.model_dump().items() if v}
        return example(**known, route=Route.COMPOUND)

    dataset = build_dataset(COMPOUND, read_rows(file), to_example, source=str(file))
    return replace(dataset, splits=given_splits(dataset.examples, "subset"))  # dealt out by entity


REVELATOR = "revelator"


class _Solved(Layout):
    question: Text
    answer: Text


class _Passage(Layout):
    title: str
    text: Text


class _RevelatorRow(Layout):
    id: Id
    role: Annotated[RevelatorRole, Field(strict=False)]
    part: Literal["train", "validation", "test"]
    origin: str = ""
    question: Text


_SOLVED: tuple[Any, Any] = (list[_Solved], ...)
_LAYOUTS = {
    role: (create_model(f"_{role.name.title()}Row", __base__=_RevelatorRow, **fields), ("question", *inputs))
    for role, inputs, fields in (
        (RevelatorRole.ROUTER, (), {"route": (Annotated[Route, Field(strict=False)], ...)}),
        (RevelatorRole.DECOMPOSER, (), {"sub_queries": (list[Text], Field(min_length=1))}),
        (RevelatorRole.REFINER, ("solved",), {"solved": _SOLVED, "query": (Text, ...)}),
        (RevelatorRole.RELEVANCE, ("passage",), {"passage": (_Passage, ...), "relevant": (bool, ...)}),
        (RevelatorRole.ENDING, ("solved",), {"solved": _SOLVED, "ending": (bool, ...)}),
    )
}
"""The layout of each role's rows, and the names of its inputs."""


def load_revelator(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read the revelator's training set.

    An example has the inputs and the output of its role, which is its `subset`: router (`question`;
    `route`), decomposer (`question`; `sub_queries`), refiner (`question`, `solved`; `query`),
    relevance (`question`, `passage`; `relevant`), ending (`question`, `solved`; `ending`). `part`
    is train, validation or test; each question is in one part only; `origin` names the dataset.
    """
    problem = "the revelator's training set is read from a file"
    file = given_path(path, problem, "Build one: typedrag datasets build revelator")
    roles = choose_subsets([role.value for role in RevelatorRole], subset)

    def to_example(entry: Entry) -> dspy.Example | str:
        role = parse(_RevelatorRow, entry).role
        if role.value not in roles:
            return f"it is for the {role}"
        layout, inputs = _LAYOUTS[role]
        fields: dict[str, Any] = parse(layout, entry).model_dump(exclude={"role"})
        import dspy

        return dspy.Example(**fields, subset=role.value).with_inputs(*inputs)

    dataset = build_dataset(REVELATOR, read_rows(file), to_example, source=str(file))
    return replace(dataset, splits=given_splits(dataset.examples, "part"))


_ADAPTIVE_RAG_FILES = {"validation": ("dev_500_subsampled.jsonl",), "test": ("test_subsampled.jsonl",)}


class _GoldAnswer(Layout):
    spans: list[Text]


class _AdaptiveRAGRow(Layout):
    question_id: Id
    question_text: Text
    answers_objects: list[_GoldAnswer]


def load_adaptive_rag(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read the questions of a set that Adaptive-RAG and HANRAG are measured on (HANRAG, section 5).

    `answers` are the gold answers; `subset` is the authors' split, validation or test.

    Args:
        path: A folder of the authors' `processed_data`, such as `processed_data/squad`, or one of its files.
    """
    folder = given_path(path, "Adaptive-RAG's questions are read from its own files", "Name a folder: --path FOLDER")

    def to_example(entry: Entry) -> dspy.Example | str:
        row = parse(_AdaptiveRAGRow, entry)
        answers = reading.all_listed(span for answer in row.answers_objects for span in answer.spans)
        if not answers:
            return "it has no answer"
        return example(id=row.question_id, question=row.question_text, subset=entry.subset, answers=answers)

    rows = reading.read_subsets(folder, _ADAPTIVE_RAG_FILES, subset)
    dataset = build_dataset("adaptive-rag", rows, to_example, source=str(folder))
    return replace(dataset, splits=given_splits(dataset.examples, "subset"))
