"""Truthfulness beside the objective: it must not fall while a judge's score rises."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import dspy

from typedrag.datasets import Dataset
from typedrag.errors import InputError, RetrievalError
from typedrag.experiments import held_out
from typedrag.experiments.evaluate.config import MetricConfig
from typedrag.experiments.formats import format_estimate
from typedrag.experiments.resources import check_measurable
from typedrag.metrics import build_metric
from typedrag.metrics.objective import TRUTHFULNESS
from typedrag.programs.artifact.compiled import Verdict
from typedrag.records import Estimate
from typedrag.retrieval.local_models import locate_model
from typedrag.retrieval.rerank.rerankers import BI_ENCODER

TRUTH = f"{TRUTHFULNESS}/{TRUTHFULNESS}"
RIGHT = f"{TRUTHFULNESS}/right"


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
        on_notice(f"whether answers are as true as before is not measured: {error.problem}. {error.mend}")
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
