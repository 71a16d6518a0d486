"""The metric for DSPy's optimizers: it always gives a score, and hides no failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import dspy
from dspy.teleprompt.bootstrap_trace import FailedPrediction

from typedrag.core.errors import CallFailed, NotMeasurable, StepFailed
from typedrag.metrics.metric import PredictorCall
from typedrag.optimizers.compile.teleprompters.limiter import CallLimiter
from typedrag.signatures.roles import signature_role

Metric = Callable[..., dspy.Prediction]
"""A function of DSPy's five arguments that gives a `score` from 0 to 1 and `feedback`."""


class Scoring:
    """Scores predictions for a teleprompter.

    DSPy knows no missing value: an answer that the metric cannot judge would count as 0. Here it gets the base
    program's score of the same example, or its mean score if that is not known: neither gain nor loss. It is
    marked `unjudged`, and never becomes a demonstration.

    Args:
        metric: See `Metric`. It raises `StepFailed` or `NotMeasurable` if there is no score.
        limiter: Closed if the metric raises anything else.
    """

    def __init__(self, metric: Metric, limiter: CallLimiter) -> None:
        self._metric = metric
        self._limiter = limiter
        self._base: dict[int, float] | None = None
        self.base_mean = 0.0
        """The base program's mean score over the examples that could be judged."""
        self.watch: Callable[[dspy.Prediction, float], None] = lambda prediction, score: None
        """Called with each prediction and its score."""

    def set_base(self, scores: Mapping[int, float]) -> None:
        """Set the base program's scores, by the `id` of the example."""
        self._base = dict(scores)
        self.base_mean = fmean(scores.values()) if scores else 0.0

    @property
    def has_base(self) -> bool:
        """True if the base program has been scored."""
        return self._base is not None

    def base_of(self, example: dspy.Example) -> float:
        """The base program's score of an example; its mean score if that is not known."""
        return (self._base or {}).get(id(example), self.base_mean)

    def __call__(
        self,
        gold: dspy.Example,
        pred: dspy.Prediction | None,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:
        """Return the `score`, the `feedback`, and `unjudged`: True if the metric has no score.

        Args:
            gold: The example.
            pred: The prediction; None if the program failed.
            trace: The trace, given while demonstrations are made, and by GEPA.
            pred_name: The predictor that GEPA asks feedback for.
            pred_trace: The predictor's call.
        """
        if pred is None or not len(pred):
            return dspy.Prediction(score=0.0, feedback="The program gave no answer.", unjudged=False)
        try:
            # only GEPA understands replies that cannot be parsed
            parsed = trace and [call for call in trace if not isinstance(call[2], FailedPrediction)]
            scored = self._metric(gold, pred, parsed, pred_name, pred_trace)
        except (StepFailed, NotMeasurable, CallFailed) as reason:
            if isinstance(reason, CallFailed):
                self._limiter.record_failure(reason)
            for_demos = trace is not None and pred_name is None
            score = 0.0 if for_demos else self.base_of(gold)
            return dspy.Prediction(score=score, feedback=f"Not judged: {reason}", unjudged=True)
        except Exception as error:
            raise self._limiter.close_for(error) from error
        self.watch(pred, scored.score)
        return dspy.Prediction(score=scored.score, feedback=scored.feedback, unjudged=False)


def read_call(pred_name: str, pred_trace: Any) -> PredictorCall | None:
    """The call that GEPA asks feedback on; None if the predictor's role is not known.

    The trace of a call is a list of one tuple: the predictor, its inputs and its outputs.
    """
    if not pred_trace:
        return None
    predictor, inputs, outputs = pred_trace[0]
    role = signature_role(predictor.signature)
    if role is None:
        return None
    return PredictorCall(
        role=role,
        question=str(inputs.get("question") or ""),
        sources=_sources(inputs),
        written=str(outputs.get("answer") or ""),
        outputs=dict(outputs.items()),
    )


def _sources(inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of passages, or the answers to parts of a question."""
    passages: Sequence[Any] = inputs.get("passages") or ()
    answers: Sequence[Any] = inputs.get("sub_answers") or inputs.get("perspectives") or ()
    return tuple([p.text for p in passages] or [a.answer for a in answers])
