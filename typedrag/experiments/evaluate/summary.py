"""A run in a few numbers: overall, by question type and by subset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from typedrag.experiments.evaluate.results import COSTS, JudgeTally, MetricResult, QuestionResult, Run, Tally
from typedrag.lms.spending import Spending
from typedrag.metrics import Metric, Scored


@dataclass(frozen=True)
class MetricSummary(JudgeTally):
    """Counts of the answers that a metric scored, and its `measures` over these."""

    measures: Mapping[str, float]


@dataclass(frozen=True)
class GroupSummary(Tally):
    """A summary of questions: their tally, the mean `tokens`, `lm_calls` and `seconds` of an answer, and their
    metrics by name."""

    cost: Mapping[str, float]
    metrics: Mapping[str, MetricSummary]


@dataclass(frozen=True)
class RunSummary:
    """A run in numbers: over all questions, by question type, and by subset if the dataset has any."""

    name: str
    planned: int
    overall: GroupSummary
    types: Mapping[str, GroupSummary]
    subsets: Mapping[str, GroupSummary]
    spent: Spending
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON values; `spent.cost` is None if no price is known."""
        data = asdict(self)
        return {**data, "spent": {**asdict(self.spent.usage), "cost": self.spent.cost, "unpriced": self.spent.unpriced}}


def summarize(run: Run, metrics: Mapping[str, Metric]) -> RunSummary:
    """Sum up a run, finished or not, by these metrics."""
    return RunSummary(
        name=run.name,
        planned=run.planned,
        overall=_group(run.questions, metrics),
        types=_groups(run.questions, metrics, lambda q: str(q.question_type or "")),
        subsets=_groups(run.questions, metrics, lambda q: q.subset),
        spent=run.spent,
        settings=run.settings,
    )


def _groups(
    questions: Sequence[QuestionResult], metrics: Mapping[str, Metric], name_of: Callable[[QuestionResult], str]
) -> dict[str, GroupSummary]:
    names = sorted({name_of(q) for q in questions} - {""})
    return {name: _group([q for q in questions if name_of(q) == name], metrics) for name in names}


def _group(questions: Sequence[QuestionResult], metrics: Mapping[str, Metric]) -> GroupSummary:
    answers = [q.answer for q in questions if q.answer]
    costs = {name: [cost for a in answers if (cost := of(a)) is not None] for name, of in COSTS.items()}
    return GroupSummary(
        **vars(Tally.of(q.answer for q in questions)),
        cost={name: fmean(values) for name, values in costs.items() if values},
        metrics={
            name: _metric([q.metrics[name] for q in questions if name in q.metrics], metric)
            for name, metric in metrics.items()
        },
    )


def _metric(results: Sequence[MetricResult], metric: Metric) -> MetricSummary:
    scored = [Scored(r.score, r.feedback, r.measures, r.details) for r in results if r.score is not None]
    return MetricSummary(**vars(JudgeTally.of(results)), measures=metric.summarize(scored) if scored else {})
