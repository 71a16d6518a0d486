"""The base class of compile targets, and functions that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import TypeVar

import dspy

from typedrag.core.errors import InputError
from typedrag.datasets import Dataset
from typedrag.metrics import Metric
from typedrag.programs import Program
from typedrag.programs.artifact.state import named_predictors

M = TypeVar("M", bound=dspy.Module)


class Target(ABC):
    """A student to compile, the examples that it learns from, and a way to put it back into its program.

    Attributes:
        name: The name that users give.
        about: What it is, in a line.
        datasets: The names of datasets with its labels; empty if any dataset with questions will do.
    """

    name: str
    about: str
    datasets: tuple[str, ...] = ()

    @abstractmethod
    def student(self, program: Program | None = None) -> dspy.Module:
        """Make a new module for a teleprompter to compile.

        Raises:
            InputError: If it needs a program and has none, or that program has no such part.
        """

    def examples(self, dataset: Dataset, split: str = "all") -> list[dspy.Example]:
        """A dataset's examples with the student's inputs and the labels of its metric.

        The split is `train`, `validation`, `test` or `all`. Examples that belong together, such as answers to one
        question, are in one split.

        Raises:
            InputError: If the dataset has no such labels, or there is no such split.
        """
        self.check_dataset(dataset)
        return [case for example in dataset.split(split) for case in self.cases(example)]

    def cases(self, example: dspy.Example) -> Iterable[dspy.Example]:
        """The training examples made from a dataset's example."""
        return (example,)

    def metric(self) -> Metric | None:
        """The target's own metric; None if it is compiled against the user's objective."""
        return None

    def test_examples(self, dataset: Dataset) -> list[dspy.Example]:
        """The examples of the test split, as the test takes them."""
        return self.examples(dataset, "test")

    def test_metric(self) -> Metric | None:
        """The metric of the test, as `metric` is that of the compile."""
        return self.metric()

    @abstractmethod
    def put_back(self, program: Program | None, compiled: dspy.Module) -> dspy.Module:
        """The module to save: a copy of the program with the compiled student in its place, or the judge.

        Raises:
            InputError: If the compiled module is not of the student's class.
        """

    def tested(self, module: dspy.Module) -> dspy.Module:
        """The module to test: of a program the one in the student's place, which may be of another class."""
        return self.student(needed(module, self.name))

    def check_dataset(self, dataset: Dataset) -> None:
        """Refuse a dataset that is not among `datasets`."""
        if self.datasets and dataset.name not in self.datasets:
            raise InputError(
                f"'{self.name}' cannot be compiled on dataset '{dataset.name}'",
                f"Datasets with its labels: {', '.join(self.datasets)}",
            )


def needed(program: dspy.Module | None, name: str) -> Program:
    if not isinstance(program, Program):
        raise InputError(f"'{name}' is compiled within a program", "Name one: --program NAME")
    return program


def of_kind(compiled: dspy.Module, kind: type[dspy.Module], name: str) -> dspy.Module:
    if not isinstance(compiled, kind):
        raise InputError(
            f"what was compiled of '{name}' is a {type(compiled).__name__}, which cannot be put back",
            "Use another optimizer",
        )
    return compiled


def unfrozen(module: M) -> M:
    """A copy without marks of being compiled: DSPy neither compiles nor saves marked modules."""
    copy: M = module.deepcopy()
    for _, part in copy.named_sub_modules(dspy.Module):
        part._compiled = False
    return copy


def transfer(source: dspy.Module, target: dspy.Module, names: Collection[str] | None = None) -> None:
    """Copy the signature, demonstrations and settings of predictors to the target, by default of all that both have."""
    compiled, mine = named_predictors(source), named_predictors(target)
    for name in compiled.keys() & mine.keys() if names is None else names:
        mine[name].signature = compiled[name].signature
        mine[name].demos = list(compiled[name].demos)
        mine[name].config = dict(compiled[name].config)
