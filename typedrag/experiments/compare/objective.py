"""The objective of a compile or sweep as a metric of each question, and truthfulness beside it, which must not fall."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import dspy

from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Estimate
from typedrag.datasets import Dataset
from typedrag.experiments import held_out
from typedrag.experiments.evaluate.config import MetricConfig
from typedrag.experiments.evaluate.results import MetricResult, QuestionResult, Run
from typedrag.experiments.formats import format_estimate
from typedrag.experiments.resources import check_measurable
from typedrag.metrics import build_metric
from typedrag.metrics.objective import TRUTHFULNESS
from typedrag.programs.artifact.compiled import Verdict
from typedrag.retrieval.local_models import locate_model
from typedrag.retrieval.rerank.rerankers import BI_ENCODER

OBJECTIVE = "objective"
SCORE = f"{OBJECTIVE}/score"
"""The measure that decides: the weighted mean of the metrics that were compiled against."""
TRUTH = f"{TRUTHFULNESS}/{TRUTHFULNESS}"
RIGHT = f"{TRUTHFULNESS}/right"


def with_objective(run: Run, weights: Mapping[str, float], measurable: Mapping[str, Collection[str]]) -> Run:
    """The run with another metric, `objective`: the weighted mean of the scores of others.

    As in `Objective`, a metric counts for the questions that it can measure, whatever the answer: an answer that it
    cannot measure scores 0 by it, so that no program wins by escaping a metric. A question without an answer scores 0;
    one whose judge failed has no score.

    Args:
        weights: The weights of the metrics.
        measurable: The ids of the questions that each metric can measure; see `measurable_ids`.
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


def with_truthfulness(
    metrics: Sequence[MetricConfig],
    examples: Sequence[dspy.Example],
    dataset: Dataset,
    scorer: dspy.LM | None,
    on_notice: Callable[[str], None],
) -> tuple[MetricConfig, ...]:
    """The metrics of a test, with truthfulness added if it can measure any of the examples.

    If it cannot, `on_notice` gets the reason.
    """
    if TRUTHFULNESS in (metric.name for metric in metrics):
        return tuple(metrics)
    try:
        truthfulness = build_metric(TRUTHFULNESS, scorer)
        check_measurable(truthfulness, examples, dataset)
        locate_model(BI_ENCODER)  # the metric compares by it if words do not decide
    except (InputError, RetrievalError) as error:
        on_notice(f"whether answers are as true as before is not measured: {error.problem}. {error.hint}")
        return tuple(metrics)
    return (*metrics, MetricConfig(name=TRUTHFULNESS))


def verdict_of(objective: held_out.Verdict | None, truth: held_out.Verdict | None) -> Verdict:
    """The verdict by the objective, unless answers are less true by more than chance; empty if it was not measured."""
    by_objective: Verdict = objective.verdict if objective else ""
    return "less truthful" if truth and truth.is_lower and by_objective != "worse" else by_objective


def say_verdict(verdict: Verdict, truth: Estimate | None) -> str:
    """A verdict in words, with the difference in truthfulness if that decides.

    Example:
        >>> say_verdict("less truthful", Estimate(-0.1, -0.2, -0.01, n=60))
        'NOT BETTER, for answers are less truthful, by -0.100 [-0.200, -0.010]'
    """
    if verdict == "less truthful":
        return f"NOT BETTER, for answers are less truthful, by {format_estimate(truth, signed=True)}"
    return {"better": "better", "worse": "WORSE", "": "no better than chance would have it"}[verdict]


def say_truth(truth: Estimate | None) -> str:
    """The difference in truthfulness in words, with a warning if it is below 0; empty if it was not measured.

    Example:
        >>> say_truth(Estimate(0.0, -0.1, 0.1, n=60))
        'truthfulness +0.000 [-0.100, +0.100]'
    """
    if truth is None:
        return ""
    warning = ": lower than before, be it by chance; read answers before it is used" if truth.value < 0 else ""
    return f"{TRUTHFULNESS} {format_estimate(truth, signed=True)}{warning}"
