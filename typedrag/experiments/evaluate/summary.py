"""A run in a few numbers: overall, by question type and by subset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from typedrag.experiments.evaluate.results import COSTS, JudgeTally, QuestionResult, Run, Tally, value_of_failure
from typedrag.lms.cost import Spending
from typedrag.metrics import Metric, Scored


@dataclass(frozen=True)
class MetricSummary(JudgeTally):
    """Counts of the answers that a metric scored, and its measures.

    Attributes:
        measures: By name. In means a question without an answer has the value of a wrong one, see `value_of_failure`.
        answered: The means over answered questions alone, where they differ.
    """

    measures: Mapping[str, float]
    answered: Mapping[str, float]


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
        metrics={name: _metric(questions, name, metric) for name, metric in metrics.items()},
    )


def _metric(questions: Sequence[QuestionResult], name: str, metric: Metric) -> MetricSummary:
    results = [q.metrics[name] for q in questions if name in q.metrics]
    scored = [Scored(r.score, r.feedback, r.measures, r.details) for r in results if r.score is not None]
    measures = metric.summarize(scored) if scored else {}
    failures = sum(q.answer is None and name not in q.metrics for q in questions)
    with_failures = {}
    for measure, mean in measures.items():
        n, worst = sum(measure in one.measures for one in scored), value_of_failure(f"{name}/{measure}")
        if failures and n and worst is not None:
            with_failures[measure] = (n * mean + failures * worst) / (n + failures)
    return MetricSummary(
        **vars(JudgeTally.of(results)),
        measures={**measures, **with_failures},
        answered={measure: measures[measure] for measure in with_failures},
    )
