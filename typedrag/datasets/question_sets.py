"""Questions with gold answers, by the name that a user gives: benchmarks are made from them."""

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
"""Wiki-NFQA's names of datasets whose names are longer here."""


class QuestionSet(NamedTuple):
    """Questions of one origin.

    Attributes:
        name: The dataset's name in Wiki-NFQA, or the file's name up to its first dot.
        examples: Each with `id` and `question`, and with `answers` or `references` if it has any.
        skipped: The number of examples that the loader left out.
    """

    name: str
    examples: tuple[dspy.Example, ...]
    skipped: int = 0


def read_question_set(where: str, subset: str | None = None) -> QuestionSet:
    """Read questions with their gold answers.

    Args:
        where: DATASET, fetched from its home, or DATASET:PATH for a copy; or a file
            that `read_single_hop` reads.
        subset: A subset of the dataset, such as validation; None takes all there are.

    Raises:
        InputError: If `where` is none of these, a row does not fit, or a subset of a file is asked for.
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
