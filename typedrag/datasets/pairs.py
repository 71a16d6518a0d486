"""Pairs of answers in a user's own file, with people's preferences."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import dspy

from typedrag.datasets.dataset import Dataset, source
from typedrag.datasets.examples import build_dataset, example, id_of
from typedrag.datasets.reading import Entry, Id, Layout, Text, parse, read_rows, renamed
from typedrag.errors import InputError


class _Row(Layout):
    question: Text
    first: Text
    second: Text
    preference: float
    id: Id | None = None
    subset: Text | None = None


@source(
    "pairs",
    about="pairs of answers of your own, and which one people prefer: a .jsonl file, with its fields mapped",
    licence="its own",
    home="",
)
def load_pairs(path: Path | None = None, fields: Mapping[str, str] | None = None) -> Dataset:
    """Read pairs of answers.

    An example is like one of `webgpt`: `answers_compared` are its two answers; `preference` is above 0 if
    people prefer the first, below 0 if they prefer the second. Ties are left out.

    Args:
        path: A .jsonl or .json file whose rows have `question`, `first`, `second` and `preference`, and perhaps
            `id` and `subset`.
        fields: The names of fields in the file, as {"first": "answer_a"}; fields not named are called as above.

    Raises:
        InputError: If a row does not fit, a mapping names no field, or no path is given.
    """
    if path is None:
        raise InputError("dataset 'pairs' is read from a file", "Name it: --path")
    return build_dataset("pairs", read_rows(path), partial(_example, fields=fields or {}), source=str(path))


def _example(entry: Entry, *, fields: Mapping[str, str]) -> dspy.Example | str:
    named = renamed(entry, tuple(_Row.model_fields), fields)
    if isinstance(named["preference"], int) and not isinstance(named["preference"], bool):
        named["preference"] = float(named["preference"])
    row = parse(_Row, entry._replace(value={name: value for name, value in named.items() if value is not None}))
    if row.preference == 0:
        return "a tie: people prefer neither answer"
    return example(
        id=row.id or id_of(row.question, row.first, row.second),
        question=row.question,
        answers_compared=(row.first, row.second),
        preference=row.preference,
        **({"subset": row.subset} if row.subset else {}),
    )
