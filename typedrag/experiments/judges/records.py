"""The settings, tools and results of a check of judges."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import dspy

from typedrag.core.records import Estimate
from typedrag.datasets import Dataset
from typedrag.datasets.dataset import sample
from typedrag.experiments.judges.judging import JudgedBatch, judge_each
from typedrag.lms.cost import Spending
from typedrag.metrics.estimate import mean_estimate
from typedrag.metrics.labels import ConfusionTable
from typedrag.runs.work import Listener, ignore_progress

T = TypeVar("T")
R = TypeVar("R")


class Scorer(NamedTuple):
    """The LM behind the judges, and its name in tables."""

    name: str
    lm: dspy.LM


@dataclass(frozen=True)
class CheckSettings:
    """The settings of a check.

    Attributes:
        limit: The most questions of each dataset, drawn in turn from each subset and type (or the most answers, if
            all sub-questions on an answer are judged at once); None for all.
        candidates: The most labelled answers to a question to judge.
        seed: The seed of the draw of examples, references and candidates, and of intervals' resamples.
        threads: Judgments under way at once.
    """

    limit: int | None = None
    candidates: int = 4
    seed: int = 0
    threads: int = 16


@dataclass(frozen=True)
class Agreement:
    """The agreement of a judge with labels.

    Attributes:
        judge: The judge in words.
        scorer: The LM behind it; empty if it needs none.
        n: The number of judgments that were compared with a label.
        failed: The number of failed judgments, which no measure includes.
        measures: Measures with their intervals, by name, without undefined ones.
        confusion: The confusion table of labels, if there are several.
    """

    judge: str
    scorer: str
    n: int
    failed: int
    measures: Mapping[str, Estimate]
    confusion: ConfusionTable | None = None


def defined(measures: Mapping[str, Estimate | None]) -> dict[str, Estimate]:
    """The measures that have a value."""
    return {name: estimate for name, estimate in measures.items() if estimate}


@dataclass(frozen=True)
class Cost:
    """The cost of a judge's judgments; kept ones cost nothing."""

    judge: str
    scorer: str
    judgments: int
    spent: Spending
    seconds: float


@dataclass(frozen=True)
class Check:
    """The agreement of judges with one dataset's labels.

    Attributes:
        title: The title of the check.
        about: Paragraphs on the labels, the draw, and what was left out and why.
        fingerprint: The fingerprint of the dataset's examples.
        agreements: A row for each judge; judges that need no LM come first, as yardsticks.
        costs: Costs of the judges that ask an LM.
    """

    title: str
    about: tuple[str, ...]
    dataset: str
    fingerprint: str
    agreements: tuple[Agreement, ...]
    costs: tuple[Cost, ...]


class Found(NamedTuple):
    """The result of a check on one dataset: its rows, and paragraphs on how they were made."""

    agreements: Iterable[Agreement]
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class JudgesCheck:
    """The result of a check of judges; `scorers` holds the LMs' settings by their names in tables."""

    checks: tuple[Check, ...]
    scorers: Mapping[str, Mapping[str, Any]]
    settings: CheckSettings
    versions: Mapping[str, str]
    date: str


@dataclass
class Bench:
    """Asks judges about a dataset, and keeps their costs."""

    dataset: Dataset
    scorers: Sequence[Scorer]
    settings: CheckSettings
    listener: Listener = ignore_progress
    costs: list[Cost] = field(default_factory=list)

    def ask(self, name: str, scorer: Scorer | None, judge: Callable[[T], R], items: Sequence[T]) -> JudgedBatch[T, R]:
        """Ask a judge about each of the items; see `judge_each`."""
        judged = judge_each(
            judge,
            items,
            scorer=scorer.lm if scorer else None,
            threads=self.settings.threads,
            listener=self.listener,
            name=f"{self.dataset.name}: {name}, {scorer.name}" if scorer else f"{self.dataset.name}: {name}",
        )
        if scorer:
            self.costs.append(Cost(name, scorer.name, len(items), judged.spent, judged.seconds))
        return judged

    def draw(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """Draw as many examples as the limit allows, in turn from each subset and type."""
        return sample(examples, self.settings.limit or len(examples), self.settings.seed) if examples else []

    def mean(self, values: Sequence[float], groups: Sequence[Hashable]) -> Estimate | None:
        """The mean of values, with an interval that resamples whole groups."""
        return mean_estimate(values, self.settings.seed, groups=groups)
