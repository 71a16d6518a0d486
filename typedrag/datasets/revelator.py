"""The training set of HANRAG's revelator: one set for its five roles (HANRAG, section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import dspy
from pydantic import Field

from typedrag.datasets.dataset import Dataset, source
from typedrag.datasets.examples import build_dataset
from typedrag.datasets.reading import Entry, Id, Layout, Text, parse, read_rows, subsets_of
from typedrag.datasets.splits import given_splits
from typedrag.errors import InputError
from typedrag.question_types import RevelatorRole, Route

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

    Args:
        subset: One of the roles, or several separated by commas; None takes all.

    Raises:
        InputError: If a row does not fit, or no path is given.
    """
    if path is None:
        raise InputError(
            "the revelator's training set is read from a file", "Build one: typedrag datasets build revelator"
        )
    roles = subsets_of([role.value for role in RevelatorRole], subset)
    dataset = build_dataset(REVELATOR, read_rows(path), partial(_example, roles=roles), source=str(path))
    return replace(dataset, splits=given_splits(dataset.examples, "part"))


def _example(entry: Entry, *, roles: list[str]) -> dspy.Example | str:
    role = parse(_Any, entry).role
    if role.value not in roles:
        return f"it is for the {role}"
    layout, inputs = _LAYOUTS[role]
    fields: dict[str, Any] = parse(layout, entry).model_dump(exclude={"role"})
    return dspy.Example(**fields, subset=role.value).with_inputs(*inputs)
