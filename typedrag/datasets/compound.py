"""Compound questions, which ask for several things about one entity at once (HANRAG, appendix C.1)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import dspy
from pydantic import Field

from typedrag.datasets.dataset import Dataset, source
from typedrag.datasets.examples import build_dataset, example
from typedrag.datasets.reading import Entry, Id, Layout, Text, misfit, parse, read_rows, subsets_of
from typedrag.datasets.splits import SPLITS, given_splits
from typedrag.errors import InputError
from typedrag.question_types import Route

COMPOUND = "compound"
COMPOUND_SUBSETS = SPLITS


class _Row(Layout):
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
        subset: train, validation or test, or several with commas between; None takes all.

    Raises:
        InputError: If a row does not fit, or no path is given.
    """
    if path is None:
        raise InputError("compound questions are read from a file", "Build one: typedrag datasets build compound")
    subsets = subsets_of(COMPOUND_SUBSETS, subset)
    dataset = build_dataset(COMPOUND, read_rows(path), partial(_example, subsets=subsets), source=str(path))
    return replace(dataset, splits=given_splits(dataset.examples, "subset"))  # dealt out by entity


def _example(entry: Entry, *, subsets: list[str]) -> dspy.Example | str:
    row = parse(_Row, entry)
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
