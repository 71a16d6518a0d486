"""From rows to a dataset: ids are unique, and what is left out is listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import dspy

from typedrag.datasets.dataset import Dataset, hash_of, source_named
from typedrag.datasets.reading import Entry, misfit
from typedrag.errors import InputError


def example(**fields: object) -> dspy.Example:
    """An example of these fields, with `question` as its only input.

    Example:
        >>> example(id="1", question="Why?").inputs().toDict()
        {'question': 'Why?'}
    """
    return dspy.Example(**fields).with_inputs("question")


def id_of(*parts: str) -> str:
    """An id for a row that has none: a hash of what makes it what it is.

    Example:
        >>> id_of("Why is the sky blue?")
        'fa57d61b4ef46453'
    """
    return hash_of("\x1f".join(parts))[:16]


def build_dataset(
    name: str, entries: Iterable[Entry], to_example: Callable[[Entry], dspy.Example | str], *, source: str
) -> Dataset:
    """The dataset that rows make.

    A row that repeats another one entirely is left out and listed.

    Args:
        to_example: Gives the row's example, or in words why the source means it to be left out.

    Raises:
        InputError: If a row does not fit, two rows have one id but differ, or no example is left.
    """
    examples: dict[str, dspy.Example] = {}
    places: dict[str, str] = {}
    skipped = []
    for entry in entries:
        made = to_example(entry)
        if isinstance(made, str):
            skipped.append(f"{entry.place}: {made}")
        elif made.id not in examples:
            examples[made.id], places[made.id] = made, entry.place
        elif made.toDict() == examples[made.id].toDict():
            skipped.append(f"{entry.place}: it repeats {places[made.id]}")
        else:
            raise misfit(entry.place, f"its id '{made.id}' is that of {places[made.id]}")
    if not examples:
        why = f" (first left out: {skipped[0]})" if skipped else ""
        raise InputError(f"{source} holds no question of dataset '{name}'{why}", "Name other data: --path")
    return Dataset(name, tuple(examples.values()), source_named(name).licence, source, tuple(skipped))
