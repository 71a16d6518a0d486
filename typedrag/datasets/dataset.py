"""Datasets with their splits, the loaders that are found by their names, and datasets from rows."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typedrag.core.errors import InputError, names_hint
from typedrag.core.registry import check_options, entry_point_error, find_entry_points, load_entry_point
from typedrag.datasets.reading import Entry, OnFault, misfit, raise_fault
from typedrag.text.words import question_key

if TYPE_CHECKING:
    import dspy

SPLITS = ("train", "validation", "test")
_CALLED = {"train": "train", "valid": "validation", "dev": "validation", "validation": "validation", "test": "test"}
_BOUNDS = (0.5, 0.75)
"""The shares of a stratum at which train and validation end; the rest is test."""

Splits = Mapping[str, str]
"""The split of each example, by its id; ids without a split are absent."""


def text_hash(text: str, seed: int = 0) -> str:
    """A hash of a text and a seed, in hexadecimal, the same on every machine."""
    return hashlib.sha256(f"{seed}:{text}".encode()).hexdigest()


def labelled_type(example: dspy.Example) -> str:
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
    splits: dict[str, str] = {}
    for key, stratum in stratify(list(first.values())).items():
        offset = int(text_hash("/".join(key)), 16) / 16**64
        ends = [0, *(int(len(stratum) * bound + offset) for bound in _BOUNDS), len(stratum)]
        for split, start, end in zip(SPLITS, ends, ends[1:], strict=False):
            splits |= {i: split for example in stratum[start:end] for i in groups[question_group(example)]}
    return splits


def check_split(name: str) -> None:
    if name not in ("all", *SPLITS):
        raise InputError(f"no split is called '{name}'", names_hint("Splits", name, ("all", *SPLITS)))


def given_splits(examples: Sequence[dspy.Example], field: str) -> Splits:
    """The splits named by a field of the examples; a question that is named for several is in the last of them."""
    return _keep_apart(examples, {e.id: _CALLED[e[field]] for e in examples})


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
    return _keep_apart(examples, {i: splits.get(i, "test") for i in named})


def _keep_apart(examples: Sequence[dspy.Example], splits: Splits) -> Splits:
    """Splits without the examples of a question that is also in a later split: no test question is learned from."""
    last: dict[str, int] = {}
    for e in examples:
        if e.id in splits:
            last[question_group(e)] = max(last.get(question_group(e), 0), SPLITS.index(splits[e.id]))
    return {e.id: splits[e.id] for e in examples if e.id in splits and splits[e.id] == SPLITS[last[question_group(e)]]}


_DERIVED = ("predicted_type", "passage_texts")
"""Fields that follow from others, so that they tell no datasets apart."""


@dataclass(frozen=True)
class Dataset:
    """A named sequence of examples with its origin.

    An example has `id` and `question`, its only input, and of the following what its source knows:
    `question_type` (`QuestionType`; `predicted_type` if no person labelled it), `subset` (a name),
    `references` (`Reference`s, best first), `answers` (short gold answers, any of which is right),
    `passage_ids` (passages a good answer needs; `passage_texts` are their texts), `sub_questions` (`SubQuestion`s),
    `nuggets` (`Nugget`s),
    `aspects` (sub-aspects of a broad question) and `sub_answers` (an answer to each, in their order). A loader's
    docstring names the fields that only its source has.

    Attributes:
        name: The name that `load_dataset` knows.
        examples: The examples in the source's order, with unique ids.
        licence: The source's licence, in a line.
        source: The place it was read from.
        skipped: The rows left out, one line each with the reason: nothing is dropped silently.
        splits: The source's splits, if it deals the examples out in another way than by their subsets.
        columns: The columns of a user's file, and those that can be read, for messages.
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
        """SHA-256 of all examples, whatever their order and the fields that follow from others."""
        labelled = ({name: value for name, value in e.items() if name not in _DERIVED} for e in self.examples)
        rows = sorted(json.dumps(row, sort_keys=True, default=plain) for row in labelled)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()

    def split(self, name: str) -> tuple[dspy.Example, ...]:
        """The examples of `train`, `validation` or `test`, or with `all` every one. No question is in two splits.

        If the source publishes splits, these are used: see `official_splits`. Otherwise the questions of each stratum
        (subset and question type) are ordered by the hashes of their ids: the first half is train, the next quarter
        validation, the last test. A hash of the stratum decides how its shares are rounded, so that sizes are exact in
        expectation; a new question moves at most the two at the bounds. (A bound on each id's own hash would by chance
        leave small strata without a test question.) If several examples ask one question, the first by id decides for
        all of them.
        """
        check_split(name)
        if name == "all":
            return self.examples
        return tuple(e for e in self.examples if self._splits.get(e.id) == name)

    @property
    def default_split(self) -> str:
        """The split to measure on by default: `test` if the source publishes one, else `all`."""
        return "test" if "test" in self._official.values() else "all"

    @cached_property
    def _official(self) -> Splits:
        return self.splits or official_splits(self.examples)

    @cached_property
    def _splits(self) -> Splits:
        return self._official or drawn_splits(self.examples)

    def strata(self) -> dict[tuple[str, str], list[dspy.Example]]:
        """The examples by subset and question type, each in the order of its ids' hashes."""
        return stratify(self.examples)


def sample(
    examples: Sequence[dspy.Example],
    limit: int,
    seed: int = 0,
    type_of: Callable[[dspy.Example], str] = labelled_type,
) -> list[dspy.Example]:
    """A sample of `limit` examples at most, drawn by hash in turn from each stratum, so that all are represented. A
    larger limit adds to the examples of a smaller one; a limit below the number of strata still reaches each subset."""
    if limit < 1:
        raise InputError(f"a limit of {limit} leaves no question", "Use 1 or more")
    strata = stratify(examples, type_of)
    subsets, types = sorted({subset for subset, _ in strata}), sorted({name for _, name in strata})

    def turn_of(stratum: tuple[str, str]) -> tuple[int, int]:
        subset, question_type = subsets.index(stratum[0]), types.index(stratum[1])
        return (question_type - subset) % len(types), subset

    queues = [sorted(strata[key], key=lambda e: text_hash(e.id, seed)) for key in sorted(strata, key=turn_of)]
    turns = [(place, n, e) for n, queue in enumerate(queues) for place, e in enumerate(queue)]
    return [e for _, _, e in sorted(turns, key=lambda turn: turn[:2])[:limit]]


def plain(value: Any) -> Any:
    """The JSON value of a record or enum in an example, for `json.dumps`."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} in an example")


Loader = Callable[..., Dataset]


@dataclass(frozen=True)
class Source:
    """A dataset's name, and what reads it: from a file or folder if a path is given, else from its home or the
    package."""

    name: str
    load: Loader
    about: str
    licence: str
    home: str


_SOURCES: dict[str, Source] = {}


def source(name: str, *, about: str, licence: str, home: str) -> Callable[[Loader], Loader]:
    """Decorator: register a loader by its dataset's name."""

    def remember(load: Loader) -> Loader:
        if name in _SOURCES and _SOURCES[name].load.__module__ != load.__module__:
            owner = f"{_SOURCES[name].load.__module__} has a dataset of that name"
            raise InputError(f"{load.__module__} registers dataset '{name}', but {owner}", "Call it otherwise")
        _SOURCES[name] = Source(name, load, about, licence, home)
        return load

    return remember


def sources() -> list[Source]:
    """All named datasets, by name: ours, and those that packages declare as entry points of `typedrag.datasets`."""
    ours = [name for name, known in _SOURCES.items() if known.load.__module__.startswith("typedrag.")]
    for name, point in find_entry_points("datasets", ours).items():
        load_entry_point(point)  # this imports the module, which calls `source`
        if name not in _SOURCES:
            raise entry_point_error(point, f"it registers no dataset '{name}'")
    return [_SOURCES[name] for name in sorted(_SOURCES)]


def source_named(name: str) -> Source:
    if name not in _SOURCES and name not in (known := [source.name for source in sources()]):
        raise InputError(f"no dataset is called '{name}'", names_hint("Datasets", name, known))
    return _SOURCES[name]


def load_dataset(name: str, path: Path | str | None = None, **options: Any) -> Dataset:
    """Load the dataset of this name.

    Args:
        name: One of `sources()`.
        path: A file or folder in its native layout; None reads it from its public home.
        options: Options of its loader, such as `subset`.
    """
    load = source_named(name).load
    check_options(f"dataset '{name}'", load, options, besides=("path",))
    return load(None if path is None else Path(path), **options)


def example(**fields: object) -> dspy.Example:
    """An example with these fields, of which `question` is the only input."""
    import dspy  # takes half a second, and a search needs none of it

    return dspy.Example(**fields).with_inputs("question")


def given_path(path: Path | None, problem: str, hint: str = "Name it: --path") -> Path:
    """The path, which a dataset without a home of its own needs."""
    if path is None:
        raise InputError(problem, hint)
    return path


def make_id(*parts: str) -> str:
    """An id for a row that has none: a hash of the parts that identify it."""
    return text_hash("\x1f".join(parts))[:16]


def build_dataset(
    name: str,
    entries: Iterable[Entry],
    to_example: Callable[[Entry], dspy.Example | str],
    *,
    source: str,
    on_fault: OnFault = raise_fault,
) -> Dataset:
    """The dataset of some rows, each an example, or the reason why the source leaves it out. A row that repeats another
    one entirely is left out and listed."""
    examples: dict[str, dspy.Example] = {}
    places: dict[str, str] = {}
    skipped = []
    for entry in entries:
        try:
            result = to_example(entry)
        except InputError as error:
            on_fault(entry.place, error)
            continue
        if isinstance(result, str):
            skipped.append(f"{entry.place}: {result}")
        elif result.id not in examples:
            examples[result.id], places[result.id] = result, entry.place
        elif result.toDict() == examples[result.id].toDict():
            skipped.append(f"{entry.place}: it repeats {places[result.id]}")
        else:
            on_fault(entry.place, misfit(entry.place, f"its id '{result.id}' is that of {places[result.id]}"))
    if not examples:
        why = f" (first left out: {skipped[0]})" if skipped else ""
        raise InputError(f"{source} holds no question of dataset '{name}'{why}", "Name other data: --path")
    return Dataset(name, tuple(examples.values()), source_named(name).licence, source, tuple(skipped))
