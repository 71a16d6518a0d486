"""The datasets of HANRAG: compound questions, and questions for each role of the revelator."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import dspy
from pydantic import Field

from typedrag.core.errors import InputError
from typedrag.core.question_types import RevelatorRole, Route
from typedrag.datasets.dataset import SPLITS, Dataset, build_dataset, example, given_splits, source
from typedrag.datasets.reading import Entry, Id, Layout, Text, choose_subsets, misfit, parse, read_rows

COMPOUND = "compound"
COMPOUND_SUBSETS = SPLITS


class _CompoundRow(Layout):
    id: Id
    subset: Text
    entity: Text
    question: Text
    answers: list[Text] = Field(min_length=1)
    sub_queries: list[Text] = Field(min_length=2)
    sub_answers: list[Text]
    passage_ids: list[Id] = Field(default=[])


@source(
    COMPOUND,
    about="questions for two to four things about one entity, made by `typedrag datasets build compound`",
    licence="that of what it was made from",
    home="",
)
def load_compound(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read the compound questions that a builder made.

    `answers` holds one gold answer, its entities separated by ` && ` (HANRAG, table 8);
    `sub_queries` and `sub_answers` are the questions that it was joined from, in their order; `route` is
    compound; `entity` is the entity of all of them. No entity is in two subsets.

    Args:
    """
    if path is None:
        raise InputError("compound questions are read from a file", "Build one: typedrag datasets build compound")
    subsets = choose_subsets(COMPOUND_SUBSETS, subset)
    dataset = build_dataset(COMPOUND, read_rows(path), partial(_compound_example, subsets=subsets), source=str(path))
    return replace(dataset, splits=given_splits(dataset.examples, "subset"))  # dealt out by entity


def _compound_example(entry: Entry, *, subsets: list[str]) -> dspy.Example | str:
    row = parse(_CompoundRow, entry)
    if len(row.sub_queries) != len(row.sub_answers):
        raise misfit(entry.place, f"it has {len(row.sub_queries)} sub_queries and {len(row.sub_answers)} sub_answers")
    if row.subset not in subsets:
        return f"it is of subset {row.subset}"
    return example(
        id=row.id,
        question=row.question,
        subset=row.subset,
        entity=row.entity,
        route=Route.COMPOUND,
        answers=tuple(row.answers),
        sub_queries=tuple(row.sub_queries),
        sub_answers=tuple(row.sub_answers),
        **({"passage_ids": tuple(row.passage_ids)} if row.passage_ids else {}),
    )


REVELATOR = "revelator"


class _Solved(Layout):
    question: Text
    answer: Text


class _Passage(Layout):
    title: str
    text: Text


class _Any(Layout):
    id: Id
    role: Annotated[RevelatorRole, Field(strict=False)]
    part: Literal["train", "validation", "test"]
    origin: str = ""
    question: Text


class _Routed(_Any):
    route: Annotated[Route, Field(strict=False)]


class _Decomposed(_Any):
    sub_queries: list[Text] = Field(min_length=1)


class _Refined(_Any):
    solved: list[_Solved]
    query: Text


class _Judged(_Any):
    passage: _Passage
    relevant: bool


class _Ended(_Any):
    solved: list[_Solved]
    ending: bool


_LAYOUTS: Mapping[RevelatorRole, tuple[type[_Any], tuple[str, ...]]] = {
    RevelatorRole.ROUTER: (_Routed, ("question",)),
    RevelatorRole.DECOMPOSER: (_Decomposed, ("question",)),
    RevelatorRole.REFINER: (_Refined, ("question", "solved")),
    RevelatorRole.RELEVANCE: (_Judged, ("question", "passage")),
    RevelatorRole.ENDING: (_Ended, ("question", "solved")),
}
"""The layout of each role's rows, and the names of its inputs."""


@source(
    REVELATOR,
    about="labels of HANRAG's router, decomposer, refiner and discriminators, by `datasets build revelator`",
    licence="that of what it was made from",
    home="",
)
def load_revelator(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read the revelator's training set.

    An example has the inputs and the output of its role, which is its `subset`: router (`question`;
    `route`), decomposer (`question`; `sub_queries`), refiner (`question`, `solved`; `query`),
    relevance (`question`, `passage`; `relevant`), ending (`question`, `solved`; `ending`). `part`
    is train, validation or test; each question is in one part only; `origin` names the dataset.
    """
    if path is None:
        raise InputError(
            "the revelator's training set is read from a file", "Build one: typedrag datasets build revelator"
        )
    roles = choose_subsets([role.value for role in RevelatorRole], subset)
    dataset = build_dataset(REVELATOR, read_rows(path), partial(_revelator_example, roles=roles), source=str(path))
    return replace(dataset, splits=given_splits(dataset.examples, "part"))


def _revelator_example(entry: Entry, *, roles: list[str]) -> dspy.Example | str:
    role = parse(_Any, entry).role
    if role.value not in roles:
        return f"it is for the {role}"
    layout, inputs = _LAYOUTS[role]
    fields: dict[str, Any] = parse(layout, entry).model_dump(exclude={"role"})
    return dspy.Example(**fields, subset=role.value).with_inputs(*inputs)
