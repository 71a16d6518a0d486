"""Datasets from rows: ids are unique, and rows left out are listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import dspy

from typedrag.datasets.dataset import Dataset, hash_of, source_named
from typedrag.datasets.reading import Entry, misfit
from typedrag.errors import InputError


def example(**fields: object) -> dspy.Example:
    """An example with these fields, of which `question` is the only input.

    Example:
        >>> example(id="1", question="Why?").inputs().toDict()
        {'question': 'Why?'}
    """
    return dspy.Example(**fields).with_inputs("question")


def id_of(*parts: str) -> str:
    """An id for a row that has none: a hash of the parts that identify it.

    Example:
        >>> id_of("Why is the sky blue?")
        'fa57d61b4ef46453'
    """
    return hash_of("\x1f".join(parts))[:16]


def build_dataset(
    name: str, entries: Iterable[Entry], to_example: Callable[[Entry], dspy.Example | str], *, source: str
) -> Dataset:
    """The dataset of some rows.

    A row that repeats another one entirely is left out and listed.

    Args:
        to_example: Returns the row's example, or the reason why the source leaves it out.

    Raises:
        InputError: If a row does not fit, two rows with one id differ, or no example is left.
    """
    examples: dict[str, dspy.Example] = {}
    places: dict[str, str] = {}
    skipped = []
    for entry in entries:
        result = to_example(entry)
        if isinstance(result, str):
            skipped.append(f"{entry.place}: {result}")
        elif result.id not in examples:
            examples[result.id], places[result.id] = result, entry.place
        elif result.toDict() == examples[result.id].toDict():
            skipped.append(f"{entry.place}: it repeats {places[result.id]}")
        else:
            raise misfit(entry.place, f"its id '{result.id}' is that of {places[result.id]}")
    if not examples:
        why = f" (first left out: {skipped[0]})" if skipped else ""
        raise InputError(f"{source} holds no question of dataset '{name}'{why}", "Name other data: --path")
    return Dataset(name, tuple(examples.values()), source_named(name).licence, source, tuple(skipped))
