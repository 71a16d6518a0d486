"""The objective of a compile, the weighted mean of a run's metrics, as another metric of each question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from typedrag.experiments.evaluate.results import MetricResult, QuestionResult, Run

OBJECTIVE = "objective"
SCORE = f"{OBJECTIVE}/score"
"""The measure that decides: the weighted mean of the metrics that were compiled against."""


def with_objective(run: Run, weights: Mapping[str, float], *, unanswered: float | None = None) -> Run:
    """The run with another metric, `objective`: the weighted mean of the scores of others.

    As in `Objective`, metrics that cannot measure a question are left out of its mean; a question whose judge failed
    has none. `unanswered` is the score of a question without an answer; None leaves it without a value.
    """
    questions = tuple(
        replace(q, metrics={**q.metrics, OBJECTIVE: _objective(q, weights, unanswered)}) for q in run.questions
    )
    return replace(run, questions=questions)


def _objective(question: QuestionResult, weights: Mapping[str, float], unanswered: float | None) -> MetricResult:
    if question.answer is None:
        return MetricResult(unanswered, measures={} if unanswered is None else {"score": unanswered})
    results = [(question.metrics[name], weight) for name, weight in weights.items() if name in question.metrics]
    if failed := next((r for r, _ in results if r.measurable and r.score is None), None):
        return MetricResult(None, problem=failed.problem)
    measured = [(r.score, weight) for r, weight in results if r.score is not None]
    if not measured:
        return MetricResult(None, problem="nothing to measure by", measurable=False)
    score = sum(s * w for s, w in measured) / sum(w for _, w in measured)
    return MetricResult(score, measures={"score": score})
