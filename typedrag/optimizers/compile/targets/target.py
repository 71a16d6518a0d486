"""What a target of compiling is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import TypeVar

import dspy

from typedrag.datasets import Dataset
from typedrag.errors import InputError
from typedrag.metrics import Metric
from typedrag.programs import Program
from typedrag.programs.artifact.state import named_predictors

M = TypeVar("M", bound=dspy.Module)


class Target(ABC):
    """Something that can be compiled: a student, the examples that it learns from, and a way back.

    Attributes:
        name: As a user calls it.
        about: What it is, in a line.
        datasets: Those with the labels that it needs, by name; empty if any with questions will do.
    """

    name: str
    about: str
    datasets: tuple[str, ...] = ()

    @abstractmethod
    def student(self, program: Program | None = None) -> dspy.Module:
        """What a teleprompter compiles, made anew.

        Raises:
            InputError: If it needs a program and has none, or that program has no such part.
        """

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """A dataset's examples with the student's inputs and what its metric needs.

        The split is `train`, `validation`, `test` or `all`. What belongs together, such as answers to one question,
        is in one split.

        Raises:
            InputError: If the dataset has no labels of the kind, or there is no such split.
        """
        self.check_dataset(dataset)
        return [case for example in dataset.split(split) for case in self.cases(example)]

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        """What is learnt from a dataset's example."""
        return (example,)

    def metric(self) -> Metric | None:
        """Its own metric; None if the user's objective is compiled against."""
        return None

    @abstractmethod
    def put_back(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        """What is saved: a copy of the program with what the student was compiled to in its place, or the judge.

        Raises:
            InputError: If what was compiled is not the student's kind any more.
        """

    def base(self, program: Program) -> dspy.Module:
        """What the compiled student is tested against: the module in its place, which may be of another make."""
        return self.student(program)

    def check_dataset(self, dataset: Dataset) -> None:
        """Refuse what is none of `datasets`."""
        if self.datasets and dataset.name not in self.datasets:
            raise InputError(
                f"'{self.name}' cannot be compiled on dataset '{dataset.name}'",
                f"Datasets with its labels: {', '.join(self.datasets)}",
            )


def needed(program: Program | None, name: str) -> Program:
    """The program, or an `InputError` where there is none."""
    if program is None:
        raise InputError(f"'{name}' is compiled within a program", "Name one: --program NAME")
    return program


def of_kind(compiled: dspy.Module, kind: type[dspy.Module], name: str) -> dspy.Module:
    """The compiled module, or an `InputError` if it is not of this kind."""
    if not isinstance(compiled, kind):
        raise InputError(
            f"what was compiled of '{name}' is a {type(compiled).__name__}, which cannot be put back",
            "Use another optimizer",
        )
    return compiled


def unfrozen(module: M) -> M:
    """A copy with nothing in it marked as compiled: what is so marked DSPy neither compiles nor saves."""
    copy: M = module.deepcopy()
    for _, part in copy.named_sub_modules(dspy.Module):
        part._compiled = False
    return copy


def transfer(source: dspy.Module, target: dspy.Module, names: Collection[str] | None = None) -> None:
    """Give predictors of the target, by default all that both have, what those of the source were compiled to."""
    compiled, mine = named_predictors(source), named_predictors(target)
    for name in compiled.keys() & mine.keys() if names is None else names:
        mine[name].signature = compiled[name].signature
        mine[name].demos = list(compiled[name].demos)
        mine[name].config = dict(compiled[name].config)
