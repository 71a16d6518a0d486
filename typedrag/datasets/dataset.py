"""What a dataset is, and how datasets are found by name."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import dspy

from typedrag.errors import InputError

SPLITS = ("train", "validation", "test")
_SHARES = (0.5, 0.25)
"""Of train and of validation; the rest is test."""


@dataclass(frozen=True)
class Dataset:
    """Examples with a name and an origin.

    An example has `id` and `question`, its only input, and of these what its source knows:
    `question_type` (`QuestionType`), `subset` (a name), `references` (`Reference`s, best first),
    `answers` (short gold answers, any of which is right), `passage_ids` (passages a good answer
    needs), `sub_questions` (`SubQuestion`s).

    Attributes:
        name: As `load_dataset` knows it.
        examples: In the order of the source; ids are unique.
        licence: What its source says, in a line.
        source: Where it was read from.
        skipped: What was left out and why, one line each: nothing is dropped silently.
    """

    name: str
    examples: tuple[dspy.Example, ...]
    licence: str = ""
    source: str = ""
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        twice = [i for i, n in Counter(e.id for e in self.examples).items() if n > 1]
        if twice:
            raise InputError(
                f"dataset '{self.name}' has {len(twice)} repeated ids, such as '{twice[0]}'", "Make ids unique"
            )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all examples, whatever their order."""
        rows = sorted(json.dumps(dict(e), sort_keys=True, default=_plain) for e in self.examples)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()

    def split(self, name: str) -> tuple[dspy.Example, ...]:
        """The examples of `train`, `validation` or `test`; `all` gives every one.

        Half of each stratum (subset and question type) is train, a quarter each of the others. Which
        one an example falls into depends on the hashes of the ids in its stratum alone.

        Raises:
            InputError: If there is no such split.
        """
        if name == "all":
            return self.examples
        if name not in SPLITS:
            raise InputError(f"no split is called '{name}'", f"Splits: all, {', '.join(SPLITS)}")
        chosen = {id(e) for stratum in self.strata().values() for e in _parts(stratum)[name]}
        return tuple(e for e in self.examples if id(e) in chosen)

    def strata(self) -> dict[tuple[str, str], list[dspy.Example]]:
        """The examples by subset and question type, each in the order of its ids' hashes."""
        strata: dict[tuple[str, str], list[dspy.Example]] = defaultdict(list)
        for example in self.examples:
            strata[(str(example.get("subset") or ""), str(example.get("question_type") or ""))].append(example)
        return {key: sorted(strata[key], key=lambda e: hash_of(e.id)) for key in sorted(strata)}


def hash_of(text: str, seed: int = 0) -> str:
    """A number, as hexadecimal digits, that a text and a seed have on every machine."""
    return hashlib.sha256(f"{seed}:{text}".encode()).hexdigest()


def sample(examples: Sequence[dspy.Example], limit: int, seed: int = 0) -> list[dspy.Example]:
    """At most `limit` examples, drawn by hash in turn from each stratum, so that all are represented.

    A larger limit adds to what a smaller one gives.

    Raises:
        InputError: If the limit is below 1.
    """
    if limit < 1:
        raise InputError(f"a limit of {limit} leaves no question", "Use 1 or more")
    strata = Dataset("", tuple(examples)).strata().values()
    queues = [sorted(stratum, key=lambda e: hash_of(e.id, seed)) for stratum in strata]
    turns = [(place, n, e) for n, queue in enumerate(queues) for place, e in enumerate(queue)]
    return [e for _, _, e in sorted(turns, key=lambda turn: turn[:2])[:limit]]


def _parts(stratum: list[dspy.Example]) -> dict[str, list[dspy.Example]]:
    first = round(len(stratum) * _SHARES[0])
    second = first + round(len(stratum) * _SHARES[1])
    return dict(zip(SPLITS, (stratum[:first], stratum[first:second], stratum[second:]), strict=True))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} in an example")


Loader = Callable[..., Dataset]
"""Takes `path: Path | None` and options of its own."""


@dataclass(frozen=True)
class Source:
    """A named dataset that can be loaded.

    Attributes:
        name: Of the dataset.
        load: Reads it, from a file or folder of its user's if a path is given, else from the hub or
            the package.
        about: What it holds, in a line.
        licence: In a line.
        home: Where it is published.
    """

    name: str
    load: Loader
    about: str
    licence: str
    home: str


_SOURCES: dict[str, Source] = {}


def source(name: str, *, about: str, licence: str, home: str) -> Callable[[Loader], Loader]:
    """Decorator: make a loader known by its dataset's name."""

    def remember(load: Loader) -> Loader:
        _SOURCES[name] = Source(name, load, about, licence, home)
        return load

    return remember


def sources() -> list[Source]:
    """All named datasets, by name."""
    return [_SOURCES[name] for name in sorted(_SOURCES)]


def load_dataset(name: str, path: Path | None = None, **options: Any) -> Dataset:
    """The dataset of this name.

    Args:
        name: One of `sources()`.
        path: A file or folder of its native layout; None reads it from its public home.
        options: Of its loader, such as `subset`.

    Raises:
        InputError: If there is no such dataset or option, or a row does not fit; the message names
            file and line.
    """
    if name not in _SOURCES:
        raise InputError(f"no dataset is called '{name}'", f"Datasets: {', '.join(sorted(_SOURCES))}")
    return _SOURCES[name].load(path, **options)
