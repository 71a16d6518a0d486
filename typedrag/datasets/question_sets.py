"""Questions with gold answers, by what a user calls them: what benchmarks are made out of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import dspy

from typedrag.datasets.dataset import load_dataset, sources
from typedrag.datasets.examples import example, id_of
from typedrag.datasets.single_hop import read_single_hop
from typedrag.errors import InputError

_SHORT: Mapping[str, str] = {"natural-questions": "nq", "triviaqa": "trivia"}
"""What Wiki-NFQA calls datasets that have longer names here."""


class QuestionSet(NamedTuple):
    """Questions of one origin.

    Attributes:
        name: Of the dataset, as Wiki-NFQA calls it, or of the file up to its first dot.
        examples: Each with `id` and `question`, and with `answers` or `references` where it has any.
        skipped: How many its loader left out.
    """

    name: str
    examples: tuple[dspy.Example, ...]
    skipped: int = 0


def read_question_set(where: str, subset: str | None = None) -> QuestionSet:
    """Read questions with their gold answers.

    Args:
        where: DATASET, which is fetched from its home, or DATASET:PATH where a copy of it is; or a file
            that `read_single_hop` reads.
        subset: Of the dataset, such as validation; None takes all there are.

    Raises:
        InputError: If there is none of these, a row does not fit, or a file is to have subsets.
        Unavailable: If the dataset's home cannot be reached.
    """
    name, _, path = where.partition(":")
    if name in {source.name for source in sources()}:
        options = {"subset": subset} if subset else {}
        dataset = load_dataset(name, Path(path).expanduser() if path else None, **options)
        called = _stem(Path(path)) if name == "file" else _SHORT.get(name, name)
        return QuestionSet(called, dataset.examples, len(dataset.skipped))
    if subset:
        raise InputError(f"{where} is a file without subsets", "Leave out the subset, or name a dataset: DATASET:PATH")
    file = Path(where).expanduser()
    if not file.is_file():
        raise InputError(f"'{where}' is neither a dataset nor a file", "Write DATASET, DATASET:PATH or FILE")
    examples = tuple(
        example(id=id_of(single.question), question=single.question, answers=(single.answer,) if single.answer else ())
        for single in read_single_hop(file)
    )
    return QuestionSet(_stem(file), examples)


def _stem(file: Path) -> str:
    return file.name.partition(".")[0] or file.name
