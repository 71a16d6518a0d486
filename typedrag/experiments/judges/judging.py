"""Ask judges about many things at once; the settings and results of their checks."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import dspy

from typedrag.core.records import Estimate
from typedrag.datasets import Dataset
from typedrag.datasets.dataset import sample
from typedrag.lms.cost import CostTracker, Spending, track_calls, track_cost
from typedrag.lms.lm import use_lm
from typedrag.lms.trace import Stopwatch
from typedrag.metrics.estimate import mean_estimate
from typedrag.metrics.labels import ConfusionTable
from typedrag.runs.work import Failed, Listener, Stages, ignore_progress

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class JudgedBatch(Generic[T, R]):
    """The judgments of many items, in order, and the reasons of failed ones; what was kept has cost nothing."""

    judgments: tuple[tuple[T, R], ...] = ()
    failures: tuple[tuple[T, str], ...] = ()
    spent: Spending = field(default_factory=Spending)
    seconds: float = 0.0


def judge_each(
    judge: Callable[[T], R],
    items: Sequence[T],
    *,
    scorer: dspy.LM | None,
    threads: int = 16,
    listener: Listener = ignore_progress,
    name: str = "judgments",
) -> JudgedBatch[T, R]:
    """Ask a judge about each of the items, in threads; a scorer of None is for judges that ask no LM.

    A `StepFailed` fails its item alone, and so does a `CallFailed` if the LM still answers others.
    """
    watch = Stopwatch()
    lm: Any = use_lm(track_calls(scorer)) if scorer else nullcontext()
    with lm, dspy.context(trace=None), track_cost(CostTracker()) as account:
        results = list(zip(items, Stages(threads, listener=listener).run(name, judge, items), strict=True))
    judgments = tuple((item, result) for item, result in results if not isinstance(result, Failed))
    failures = tuple((item, str(result)) for item, result in results if isinstance(result, Failed))
    return JudgedBatch(judgments, failures, account.spent, watch.seconds)


class Scorer(NamedTuple):
    """The LM behind the judges, and its name in tables."""

    name: str
    lm: dspy.LM


@dataclass(frozen=True)
class CheckSettings:
    """The settings of a check: the most questions of each dataset, drawn in turn from each subset and type (or the most
    answers, if all sub-questions on an answer are judged at once), and the most labelled answers of each to judge."""

    limit: int | None = None
    candidates: int = 4
    seed: int = 0
    threads: int = 16


@dataclass(frozen=True)
class Agreement:
    """The agreement of a judge with n labels, by measures with their intervals, without undefined ones and failed
    judgments. The scorer is empty if the judge needs no LM."""

    judge: str
    scorer: str
    n: int
    failed: int
    measures: Mapping[str, Estimate]
    confusion: ConfusionTable | None = None


def defined(measures: Mapping[str, Estimate | None]) -> dict[str, Estimate]:
    return {name: estimate for name, estimate in measures.items() if estimate}


@dataclass(frozen=True)
class Cost:
    judge: str
    scorer: str
    judgments: int
    spent: Spending
    seconds: float


@dataclass(frozen=True)
class Check:
    """The agreement of judges with one dataset's labels, first of those that need no LM, with paragraphs on the labels,
    the draw, and what was left out and why."""

    title: str
    about: tuple[str, ...]
    dataset: str
    fingerprint: str
    agreements: tuple[Agreement, ...]
    costs: tuple[Cost, ...]


# the result of a check on one dataset: its rows, and paragraphs on how they were made
JudgeReport: TypeAlias = tuple[Sequence[Agreement], tuple[str, ...]]


@dataclass(frozen=True)
class JudgesCheck:
    checks: tuple[Check, ...]
    scorers: Mapping[str, Mapping[str, Any]]
    settings: CheckSettings
    versions: Mapping[str, str]
    date: str


@dataclass
class JudgeEvalContext:
    """Asks judges about a dataset, and keeps their costs."""

    dataset: Dataset
    scorers: Sequence[Scorer]
    settings: CheckSettings
    listener: Listener = ignore_progress
    costs: list[Cost] = field(default_factory=list)

    def ask(self, name: str, scorer: Scorer | None, judge: Callable[[T], R], items: Sequence[T]) -> JudgedBatch[T, R]:
        stage = f"{self.dataset.name}: {name}" + (f", {scorer.name}" if scorer else "")
        lm, threads = scorer.lm if scorer else None, self.settings.threads
        judged = judge_each(judge, items, scorer=lm, threads=threads, listener=self.listener, name=stage)
        if scorer:
            self.costs.append(Cost(name, scorer.name, len(items), judged.spent, judged.seconds))
        return judged

    def draw(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        return sample(examples, self.settings.limit or len(examples), self.settings.seed) if examples else []

    def mean(self, values: Sequence[float], groups: Sequence[Hashable]) -> Estimate | None:
        return mean_estimate(values, self.settings.seed, groups=groups)
