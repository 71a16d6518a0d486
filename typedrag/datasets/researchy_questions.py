"""Researchy Questions: search queries that ask for research (Rosset et al., 2024)."""

from __future__ import annotations

from pathlib import Path

import dspy
from pydantic import Field

from typedrag.datasets.dataset import Dataset, source
from typedrag.datasets.examples import build_dataset, example
from typedrag.datasets.hub import hub_rows
from typedrag.datasets.reading import Entry, Id, Layout, Text, parse, rows_of

FILES = {part: (f"researchy_questions.{part}.jsonl", f"{part}.jsonl") for part in ("train", "test")}
HUB = "corbyrosset/researchy_questions"


class _Clicked(Layout):
    document: Id = Field(validation_alias="CluewebURLHash")


class _Row(Layout):
    id: Id
    question: Text
    documents: list[_Clicked] = Field(default=[], validation_alias="DocStream")


@source(
    "researchy-questions",
    about="about 96,000 search queries that are non-factoid, many-sided and took their users much effort",
    licence="CDLA-Permissive-2.0",
    home="https://huggingface.co/datasets/corbyrosset/researchy_questions",
)
def load_researchy_questions(path: Path | None = None, subset: str | None = None) -> Dataset:
    """Read Researchy Questions.

    `passage_ids` are the ClueWeb22 documents that users clicked, in the order of the source; `subset` is
    the authors' own split.

    Args:
        path: A file `researchy_questions.train.jsonl` or `.test.jsonl`, or their folder.
        subset: train or test; None takes all there are.

    Raises:
        InputError: If a row does not fit, or there is no such file or subset.
        Unavailable: If the hub cannot be reached.
    """
    splits, columns = {part: part for part in FILES}, ("id", "question", "DocStream")
    rows = rows_of(path, FILES, subset) if path else hub_rows(HUB, splits, subset=subset, columns=columns)
    return build_dataset("researchy-questions", rows, _example, source=str(path or HUB))


def _example(entry: Entry) -> dspy.Example:
    row = parse(_Row, entry)
    return example(
        id=row.id,
        question=row.question,
        subset=entry.subset,
        passage_ids=tuple(dict.fromkeys(clicked.document for clicked in row.documents)),
    )
