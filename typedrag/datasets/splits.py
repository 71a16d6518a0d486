"""Splits into train, validation and test: a question is in one of them only, with all its examples."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import dspy

from typedrag.text.words import question_key

SPLITS = ("train", "validation", "test")
_CALLED = {"train": "train", "valid": "validation", "dev": "validation", "validation": "validation", "test": "test"}
"""The sources' names of the splits."""
_BOUNDS = (0.5, 0.75)
"""The shares of a stratum at which train and validation end; the rest is test."""

Splits = Mapping[str, str]
"""The split of each example, by its id; ids without a split are absent."""


def text_hash(text: str, seed: int = 0) -> str:
    """A hash of a text and a seed, in hexadecimal, the same on every machine."""
    return hashlib.sha256(f"{seed}:{text}".encode()).hexdigest()


def labelled_type(example: dspy.Example) -> str:
    """The question type that an example is labelled with; empty if there is none."""
    return str(example.get("question_type") or "")


def question_group(example: dspy.Example) -> str:
    """The key of the group that an example is split, folded and resampled with: its question, see `question_key`."""
    return question_key(example.question)


def stratify(
    examples: Sequence[dspy.Example], type_of: Callable[[dspy.Example], str] = labelled_type
) -> dict[tuple[str, str], list[dspy.Example]]:
    """Examples by subset and question type, each in the order of its ids' hashes."""
    strata: dict[tuple[str, str], list[dspy.Example]] = defaultdict(list)
    for example in examples:
        strata[(str(example.get("subset") or ""), type_of(example))].append(example)
    return {key: sorted(strata[key], key=lambda e: text_hash(e.id)) for key in sorted(strata)}


def drawn_splits(examples: Sequence[dspy.Example]) -> Splits:
    """Splits drawn by hash, question by question; see `Dataset.split`."""
    groups: dict[str, list[str]] = defaultdict(list)
    first: dict[str, dspy.Example] = {}
    for example in sorted(examples, key=lambda e: str(e.id)):
        groups[question_group(example)].append(example.id)
        first.setdefault(question_group(example), example)  # its subset and type count for the question
    return {
        member: split
        for key, stratum in stratify(list(first.values())).items()
        for split, part in _parts(key, stratum).items()
        for example in part
        for member in groups[question_group(example)]
    }


def given_splits(examples: Sequence[dspy.Example], field: str) -> Splits:
    """The splits named by a field of the examples; a question that is named for several is in the last of them."""
    return _apart(examples, {e.id: _CALLED[e[field]] for e in examples})


def official_splits(examples: Sequence[dspy.Example], field: str = "subset") -> Splits:
    """The splits that a source publishes; empty unless a field of all examples names them, including train.

    Many sources publish no answers for test, or no validation. The published part besides train is then test, and a
    quarter of the source's train is drawn as validation.
    """
    named = {e.id: _CALLED.get(str(e.get(field) or "")) for e in examples}
    parts = set(named.values())
    if None in parts or "train" not in parts or len(parts) < 2:
        return {}
    if len(parts) == len(SPLITS):
        return given_splits(examples, field)
    drawn = drawn_splits([e for e in examples if named[e.id] == "train"])
    splits = {i: "validation" if drawn[i] == "validation" else "train" for i in drawn}
    return _apart(examples, {i: splits.get(i, "test") for i in named})


def _apart(examples: Sequence[dspy.Example], splits: Splits) -> Splits:
    """Splits without the examples of a question that is also in a later split: no test question is learned from."""
    last: dict[str, int] = {}
    for e in examples:
        if e.id in splits:
            last[question_group(e)] = max(last.get(question_group(e), 0), SPLITS.index(splits[e.id]))
    return {e.id: splits[e.id] for e in examples if e.id in splits and splits[e.id] == SPLITS[last[question_group(e)]]}


def _parts(key: tuple[str, str], stratum: list[dspy.Example]) -> dict[str, list[dspy.Example]]:
    offset = int(text_hash("/".join(key)), 16) / 16**64
    first, second = (int(len(stratum) * bound + offset) for bound in _BOUNDS)
    return dict(zip(SPLITS, (stratum[:first], stratum[first:second], stratum[second:]), strict=True))
