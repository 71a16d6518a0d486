"""Objectives of compiles: weighted means of metrics, with feedback for each predictor."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import dspy

from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.records import Step
from typedrag.metrics.metric import Metric, PredictorCall, Scored, listed, metric_class
from typedrag.metrics.ranking import query_steps
from typedrag.signatures.roles import Role
from typedrag.text.words import beginning

TRUTHFULNESS = "truthfulness"
DEFAULT_OBJECTIVE = f"{TRUTHFULNESS}=1,linkage=1,coverage=1"
"""The default objective of compiles and sweeps. Each metric keeps the others from being gamed: saying nothing is
never wrong but ranks low and covers nothing; an answer that only sounds right ranks high, and covers much, but is
wrong."""

_WON_BY_FABRICATIONS = {
    "linkage": "of 38 wrong answers that an LM wrote from nothing, its judge ranked 28 first",
    "coverage": "what is made up covers sub-questions",
}

FEEDBACK_WORDS = 150
"""The most words of all feedback: a reflecting LM reads the feedback on several examples at once."""

ReadCall: TypeAlias = Callable[[str, Any], PredictorCall | None]
"""A function that makes a predictor's call of the name and the trace that GEPA passes to a metric; None if unknown."""


class Objective:
    """A weighted mean of metrics' scores, callable like a DSPy metric and safe to call from many threads.

    A metric that cannot measure an example is left out of its mean. One that can measure the example, but not this
    answer, such as faithfulness of an answer without passages, scores 0: no answer wins by escaping a metric.
    `read_call` finds the call that feedback is for; without it, all predictors get the same. `name` is what
    `parse_objective` reads.
    """

    def __init__(self, metrics: Sequence[tuple[Metric, float]], read_call: ReadCall | None = None) -> None:
        self.metrics = tuple(metrics)
        self._read_call = read_call
        weights = {metric.name: weight for metric, weight in self.metrics}
        _check(weights, len(self.metrics))
        self.name = ",".join(f"{name}={weight:g}" for name, weight in weights.items())

    def __call__(
        self,
        gold: dspy.Example,
        pred: dspy.Prediction,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:
        """The `score`, from 0 to 1, each metric's own in `scores`, and `feedback` for the predictor and call that GEPA
        passes, or else for the whole program."""
        measured: list[tuple[Metric, float, Scored]] = []
        reasons = []
        for metric, weight in self.metrics:
            if lack := missing_input(metric, gold):
                reasons.append(lack)
                continue
            try:
                one = metric(gold, pred)
            except NotMeasurable as reason:
                measured.append((metric, weight, Scored(0.0, f"{metric.name}: {reason}.")))
            else:
                measured.append((metric, weight, Scored(one.score, one.feedback, one.measures, one.details)))
        if not measured:
            raise NotMeasurable("; ".join(reasons))
        total = sum(weight for _, weight, _ in measured)
        score = sum(weight * scored.score for _, weight, scored in measured) / total
        parts = ", ".join(f"{metric.name} {scored.score:.2f}" for metric, _, scored in measured)
        feedback = [f"Score {score:.2f} of 1 ({parts})." if len(measured) > 1 else f"Score {score:.2f} of 1."]
        call = self._read_call(pred_name, pred_trace) if pred_name and self._read_call else None
        texts = [
            metric.predictor_feedback(call, gold, pred, scored) if call else scored.feedback
            for metric, _, scored in measured
        ]
        texts = [text for text in (*texts, _general_feedback(call, pred)) if text]
        if call and not texts:
            texts = ["Nothing in it can be laid to this step."]
        left = FEEDBACK_WORDS - len(feedback[0].split())
        for place, text in enumerate(texts):  # words that one text leaves unused pass on to the next
            feedback.append(beginning(text, left // (len(texts) - place)))
            left -= len(feedback[-1].split())
        return dspy.Prediction(
            score=min(score, 1.0),  # rounding
            feedback=" ".join(feedback),
            scores={metric.name: scored.score for metric, _, scored in measured},
        )

    def measurable(self, examples: Sequence[dspy.Example]) -> list[dspy.Example]:
        """The examples that at least one of the metrics can measure, as far as is known without a prediction."""
        return [e for e in examples if not all(missing_input(metric, e) for metric, _ in self.metrics)]


def parse_objective(spec: str) -> dict[str, float]:
    """The weights of the metrics that a spec such as `linkage,coverage=0.5` names; 1 by default."""
    return {name: 1.0 if weight is None else weight for name, weight in written_weights(spec).items()}


def written_weights(spec: str) -> dict[str, float | None]:
    """The weights that a spec gives to the metrics it names; None where it gives none."""
    weights: dict[str, float | None] = {}
    parts = [part.strip() for part in spec.split(",")]
    for part in parts:
        name, equals, weight = (text.strip() for text in part.partition("="))
        metric_class(name)
        try:
            weights[name] = float(weight) if equals else None
        except ValueError:
            raise InputError(f"the weight of metric '{name}' is '{weight}'", "Write NAME=NUMBER") from None
    _check(weights, len(parts))
    return weights


def objective_risk(metrics: Iterable[str]) -> str:
    """The known risk of optimizing these metrics, in a line; empty if there is none, or truthfulness is among them."""
    names = dict.fromkeys(metrics)
    risky = [name for name in names if name in _WON_BY_FABRICATIONS]
    if TRUTHFULNESS in names or not risky:
        return ""
    pays, why = "pays" if len(risky) == 1 else "pay", "; ".join(_WON_BY_FABRICATIONS[name] for name in risky)
    return f"{' and '.join(risky)} without {TRUTHFULNESS} {pays} for fabrications: {why}; add {TRUTHFULNESS}=1"


def _check(weights: Mapping[str, float | None], named: int) -> None:
    if not weights:
        raise InputError("no metric is named", "Name one, such as linkage")
    if len(weights) < named:
        raise InputError("a metric is named twice", "Name each once, with its weight")
    for name, weight in weights.items():
        if weight is not None and not 0 < weight < float("inf"):
            raise InputError(f"the weight of metric '{name}' is {weight:g}", "Give a number above 0")


def measurable_ids(metrics: Iterable[Metric], examples: Iterable[dspy.Example]) -> dict[str, frozenset[str]]:
    """The ids of the examples that each metric can measure, as far as is known without a prediction."""
    examples = list(examples)
    return {m.name: frozenset(str(e.id) for e in examples if not missing_input(m, e)) for m in metrics}


def missing_input(metric: Metric, example: dspy.Example) -> str:
    """The reason why a metric cannot measure an example; empty if it can."""
    try:
        metric.require(example)
    except NotMeasurable as lack:
        return str(lack) or "nothing to measure by"
    return ""


def _general_feedback(call: PredictorCall | None, pred: dspy.Prediction) -> str:
    """The feedback on a call, or else on the program, that does not depend on the metric."""
    if call and call.role is Role.SEARCHER:
        steps: Sequence[Step] = pred.get("steps") or ()
        dropped = [text for step in steps for s in step.walk() if s.name == "decompose" for text in s.dropped]
        empty = [s.input for s in query_steps(steps) if not s.passage_ids]
        messages = [f"Dropped before the search: {listed(dropped)}."] if dropped else []
        messages += [f"Nothing was found for: {listed(empty)}."] if empty else []
        return " ".join(messages)
    if call and call.role is not Role.CLASSIFIER:  # a strategy may have failed because of the wrong type
        return ""
    return f"What went wrong: {pred.fallback}." if pred.get("fallback") else ""
