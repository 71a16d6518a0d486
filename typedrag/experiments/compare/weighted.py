"""The objective of a compile, the weighted mean of a run's metrics, as another metric of each question."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from typedrag.experiments.evaluate.results import MetricResult, QuestionResult, Run

OBJECTIVE = "objective"
SCORE = f"{OBJECTIVE}/score"
"""The measure that decides: the weighted mean of the metrics that were compiled against."""


def with_objective(run: Run, weights: Mapping[str, float], measurable: Mapping[str, Collection[str]]) -> Run:
    """The run with another metric, `objective`: the weighted mean of the scores of others.

    As in `Objective`, a metric counts for the questions that it can measure, whatever the answer: an answer that it
    cannot measure scores 0 by it, so that no program wins by escaping a metric. A question without an answer scores 0;
    one whose judge failed has no score.

    Args:
        weights: The weights of the metrics.
        measurable: The ids of the questions that each metric can measure; see `measurable_by`.
    """
    questions = tuple(
        replace(
            q,
            metrics={
                **q.metrics,
                OBJECTIVE: _objective(q, {n: w for n, w in weights.items() if q.id in measurable.get(n, ())}),
            },
        )
        for q in run.questions
    )
    return replace(run, questions=questions)


def _objective(question: QuestionResult, weights: Mapping[str, float]) -> MetricResult:
    if not weights:
        return MetricResult(None, problem="nothing to measure by", measurable=False)
    score = 0.0
    for name, weight in weights.items() if question.answer else ():
        result = question.metrics.get(name)
        if result is None or (result.measurable and result.score is None):
            return MetricResult(None, problem=result.problem if result else f"{name} is not measured")
        score += weight * (result.score or 0.0)
    score /= sum(weights.values())
    return MetricResult(score, measures={"score": score})
