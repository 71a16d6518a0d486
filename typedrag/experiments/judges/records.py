"""What a check of judges is made with, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import dspy

from typedrag.datasets import Dataset
from typedrag.datasets.dataset import sample
from typedrag.experiments.judges.judging import JudgedBatch, Stage, judge_each, unseen
from typedrag.lms.spending import Spending
from typedrag.metrics.arithmetic.estimate import mean_estimate
from typedrag.metrics.judges.judgments import Judgments
from typedrag.metrics.labels import ConfusionTable
from typedrag.records import Estimate

T = TypeVar("T")
R = TypeVar("R")


class Scorer(NamedTuple):
    """The LM behind the judges, and what tables call it."""

    name: str
    lm: dspy.LM


@dataclass(frozen=True)
class CheckSettings:
    """How judges are checked.

    Attributes:
        limit: Questions of each dataset at most, drawn in turn from each subset and type, or answers where all
            sub-questions on one are judged at once; None for all.
        candidates: Labelled answers to a question that are judged at most.
        seed: Of what is drawn: examples, references, candidates, and resamples of intervals.
        threads: Judgments under way at once.
    """

    limit: int | None = None
    candidates: int = 4
    seed: int = 0
    threads: int = 16


@dataclass(frozen=True)
class Agreement:
    """How a judge agrees with labels.

    Attributes:
        judge: What judged, in words.
        scorer: The LM behind it; empty if it needs none.
        n: Judgments that were compared with a label.
        failed: Those that could not be had, which are in none of the measures.
        measures: With their intervals, by name; undefined ones are absent.
        confusion: Of labels, where there are several.
    """

    judge: str
    scorer: str
    n: int
    failed: int
    measures: Mapping[str, Estimate]
    confusion: ConfusionTable | None = None


def defined(measures: Mapping[str, Estimate | None]) -> dict[str, Estimate]:
    """Those measures that have a value."""
    return {name: estimate for name, estimate in measures.items() if estimate}


@dataclass(frozen=True)
class Cost:
    """What it took to ask a judge for so many judgments; those that were found in the store cost nothing."""

    judge: str
    scorer: str
    judgments: int
    spent: Spending
    seconds: float


@dataclass(frozen=True)
class Check:
    """How judges agree with one dataset's labels.

    Attributes:
        title: What was checked.
        about: Paragraphs: the labels, how things were drawn, what was left out and why.
        fingerprint: Of the dataset's examples.
        agreements: A row for each judge; those that need no LM first, as yardsticks.
        costs: Of the judges that ask an LM.
    """

    title: str
    about: tuple[str, ...]
    dataset: str
    fingerprint: str
    agreements: tuple[Agreement, ...]
    costs: tuple[Cost, ...]


class Found(NamedTuple):
    """What a check of one dataset found: its rows, and paragraphs on how they came about."""

    agreements: Iterable[Agreement]
    said: tuple[str, ...]


@dataclass(frozen=True)
class JudgesCheck:
    """All that a check of judges found; `scorers` are the LMs' settings by the names that tables call them."""

    checks: tuple[Check, ...]
    scorers: Mapping[str, Mapping[str, Any]]
    settings: CheckSettings
    versions: Mapping[str, str]
    date: str


@dataclass
class Bench:
    """Where the judges of a dataset are asked, with what it all took so far."""

    dataset: Dataset
    scorers: Sequence[Scorer]
    judgments: Judgments
    settings: CheckSettings
    stage: Stage = unseen
    costs: list[Cost] = field(default_factory=list)

    def ask(self, name: str, scorer: Scorer | None, judge: Callable[[T], R], items: Sequence[T]) -> JudgedBatch[T, R]:
        """Ask a judge about each of the items; see `judge_each`."""
        judged = judge_each(
            judge,
            items,
            scorer=scorer.lm if scorer else None,
            threads=self.settings.threads,
            stage=self.stage,
            name=f"{self.dataset.name}: {name}, {scorer.name}" if scorer else f"{self.dataset.name}: {name}",
        )
        if scorer:
            self.costs.append(Cost(name, scorer.name, len(items), judged.spent, judged.seconds))
        return judged

    def draw(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """As many as the limit allows, in turn from each subset and type."""
        return sample(examples, self.settings.limit or len(examples), self.settings.seed) if examples else []

    def mean(self, values: Sequence[float], groups: Sequence[Hashable]) -> Estimate | None:
        """The mean of values, of which whole groups are resampled."""
        return mean_estimate(values, self.settings.seed, groups=groups)
