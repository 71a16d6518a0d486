"""What a dataset is, and how datasets are found by name."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import dspy

from typedrag.datasets.splits import SPLITS, Splits, drawn_splits, labelled_type, official_splits, strata_of
from typedrag.datasets.splits import hash_of as hash_of
from typedrag.errors import InputError
from typedrag.registry import check_options, declared, loaded, refused


@dataclass(frozen=True)
class Dataset:
    """Examples with a name and an origin.

    An example has `id` and `question`, its only input, and of these what its source knows:
    `question_type` (`QuestionType`; `predicted_type` where no person said it), `subset` (a name),
    `references` (`Reference`s, best first), `answers` (short gold answers, any of which is right),
    `passage_ids` (passages a good answer needs), `sub_questions` (`SubQuestion`s). Fields of one source
    alone are named by its loader.

    Attributes:
        name: As `load_dataset` knows it.
        examples: In the order of the source; ids are unique.
        licence: What its source says, in a line.
        source: Where it was read from.
        skipped: What was left out and why, one line each: nothing is dropped silently.
        splits: Those of the source, where it has dealt the examples out otherwise than by their subsets.
        columns: Those of a user's file, and which can be read, for messages.
    """

    name: str
    examples: tuple[dspy.Example, ...]
    licence: str = ""
    source: str = ""
    skipped: tuple[str, ...] = ()
    splits: Splits = field(default_factory=dict)
    columns: str = ""

    def __post_init__(self) -> None:
        twice = [i for i, n in Counter(e.id for e in self.examples).items() if n > 1]
        if twice:
            raise InputError(
                f"dataset '{self.name}' has {len(twice)} repeated ids, such as '{twice[0]}'", "Make ids unique"
            )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all examples, whatever their order and what type was predicted for them."""
        told = ({name: value for name, value in e.items() if name != "predicted_type"} for e in self.examples)
        rows = sorted(json.dumps(row, sort_keys=True, default=plain) for row in told)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()

    def split(self, name: str) -> tuple[dspy.Example, ...]:
        """The examples of `train`, `validation` or `test`; `all` gives every one. No question is in two of them.

        Where the source has dealt them out, they are its own: see `official_splits`. Else the questions of each
        stratum (subset and question type) are ordered by the hashes of their ids; the first half is train, a
        quarter each validation and test: up to one question exactly, and exactly in expectation, since a hash of
        the stratum decides which way its shares are rounded. Questions of other strata change nothing; one more
        in the same stratum moves at most the two that stand at the bounds. (A bound on each id's own hash would
        move none, but leave small strata without a test question by chance.) Where several examples ask one
        question, such as pairs of answers to it, the first by id says where all of them are.

        Raises:
            InputError: If there is no such split.
        """
        if name == "all":
            return self.examples
        if name not in SPLITS:
            raise InputError(f"no split is called '{name}'", f"Splits: all, {', '.join(SPLITS)}")
        return tuple(e for e in self.examples if self._placed.get(e.id) == name)

    @property
    def default_split(self) -> str:
        """The split to measure on where none is named: `test` if the source has dealt one out, else `all`."""
        return "test" if "test" in self._dealt.values() else "all"

    @cached_property
    def _dealt(self) -> Splits:
        return self.splits or official_splits(self.examples)

    @cached_property
    def _placed(self) -> Splits:
        return self._dealt or drawn_splits(self.examples)

    def strata(self) -> dict[tuple[str, str], list[dspy.Example]]:
        """The examples by subset and question type, each in the order of its ids' hashes."""
        return strata_of(self.examples)


def sample(
    examples: Sequence[dspy.Example],
    limit: int,
    seed: int = 0,
    type_of: Callable[[dspy.Example], str] = labelled_type,
) -> list[dspy.Example]:
    """At most `limit` examples, drawn by hash in turn from each stratum, so that all are represented.

    A larger limit adds to what a smaller one gives.

    Args:
        type_of: The question type by which strata are told apart, besides the subset.

    Raises:
        InputError: If the limit is below 1.
    """
    if limit < 1:
        raise InputError(f"a limit of {limit} leaves no question", "Use 1 or more")
    queues = [sorted(stratum, key=lambda e: hash_of(e.id, seed)) for stratum in strata_of(examples, type_of).values()]
    turns = [(place, n, e) for n, queue in enumerate(queues) for place, e in enumerate(queue)]
    return [e for _, _, e in sorted(turns, key=lambda turn: turn[:2])[:limit]]


def plain(value: Any) -> Any:
    """For `json.dumps`: what the records and enums in an example are in JSON.

    Raises:
        TypeError: If the value is neither.
    """
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
        load: Reads it, from a file or folder of its user's if a path is given, else from the hub or
            the package.
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
        if name in _SOURCES and _SOURCES[name].load.__module__ != load.__module__:
            taken = f"{_SOURCES[name].load.__module__} has a dataset of that name"
            raise InputError(f"{load.__module__} registers dataset '{name}', but {taken}", "Call it otherwise")
        _SOURCES[name] = Source(name, load, about, licence, home)
        return load

    return remember


def sources() -> list[Source]:
    """All named datasets, by name: ours, and those that packages declare as entry points of `typedrag.datasets`.

    Raises:
        InputError: If a package's cannot be loaded, or has a name that is taken.
    """
    ours = [name for name, known in _SOURCES.items() if known.load.__module__.startswith("typedrag.")]
    for name, point in declared("datasets", ours).items():
        loaded(point)  # where `source` is called
        if name not in _SOURCES:
            raise refused(point, f"it registers no dataset '{name}'")
    return [_SOURCES[name] for name in sorted(_SOURCES)]


def source_named(name: str) -> Source:
    """The named dataset.

    Raises:
        InputError: If there is none of this name.
    """
    if name not in _SOURCES and name not in (known := [source.name for source in sources()]):
        raise InputError(f"no dataset is called '{name}'", f"Datasets: {', '.join(known)}")
    return _SOURCES[name]


def load_dataset(name: str, path: Path | str | None = None, **options: Any) -> Dataset:
    """The dataset of this name.

    Args:
        name: One of `sources()`.
        path: A file or folder of its native layout; None reads it from its public home.
        options: Of its loader, such as `subset`.

    Raises:
        InputError: If there is no such dataset or option, or a row does not fit; the message names
            file and line.
        Unavailable: If its home cannot be reached.
    """
    load = source_named(name).load
    check_options(f"dataset '{name}'", load, options, besides=("path",))
    return load(None if path is None else Path(path), **options)
