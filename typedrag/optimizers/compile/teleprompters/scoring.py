"""The metric as DSPy's optimizers get to see it: always with a score, and never a hidden failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import dspy
from dspy.teleprompt.bootstrap_trace import FailedPrediction

from typedrag.errors import CallFailed, NotMeasurable, StepFailed
from typedrag.metrics.feedback import PredictorCall
from typedrag.optimizers.compile.teleprompters.budget import Gate
from typedrag.signatures.roles import role_of

Metric = Callable[..., dspy.Prediction]
"""With DSPy's five arguments; gives a `score` from 0 to 1 and `feedback`."""


class Scoring:
    """Scores predictions for a teleprompter.

    DSPy knows no missing value: what a metric cannot judge would count as 0. Here such a prediction gets what the
    base program got for the same example, or on average where that is not known: neither gain nor loss. It is
    marked `unjudged`, and never taken as a demonstration.

    Args:
        metric: See `Metric`. Raises `StepFailed` or `NotMeasurable` where there is no score.
        gate: Closed if the metric raises anything else.
    """

    def __init__(self, metric: Metric, gate: Gate) -> None:
        self._metric = metric
        self._gate = gate
        self._base: dict[int, float] | None = None
        self.base_mean = 0.0
        """Of the examples that could be judged."""
        self.watch: Callable[[dspy.Prediction, float], None] = lambda prediction, score: None
        """Told of each score."""

    def set_base(self, scores: Mapping[int, float]) -> None:
        """What the base program got, by the `id` of the example."""
        self._base = dict(scores)
        self.base_mean = fmean(scores.values()) if scores else 0.0

    @property
    def has_base(self) -> bool:
        """Whether the base program has been scored."""
        return self._base is not None

    def base_of(self, example: dspy.Example) -> float:
        """What the base program got for an example; on average where that is not known."""
        return (self._base or {}).get(id(example), self.base_mean)

    def __call__(
        self,
        gold: dspy.Example,
        pred: dspy.Prediction | None,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> dspy.Prediction:
        """The `score` and `feedback`, and whether it is `unjudged`.

        Args:
            gold: The example.
            pred: None if the program failed.
            trace: Given where demonstrations are looked for, and by GEPA.
            pred_name: The predictor that GEPA wants feedback for.
            pred_trace: Its call.

        Raises:
            Faulted: If the metric fails in another way than by having nothing to say.
        """
        if pred is None or not len(pred):
            return dspy.Prediction(score=0.0, feedback="The program gave no answer.", unjudged=False)
        try:
            said = self._metric(gold, pred, _parsed(trace), pred_name, pred_trace)
        except (StepFailed, NotMeasurable, CallFailed) as reason:
            if isinstance(reason, CallFailed):
                self._gate.bear(reason)
            wanted = trace is not None and pred_name is None
            score = 0.0 if wanted else self.base_of(gold)
            return dspy.Prediction(score=score, feedback=f"Not judged: {reason}", unjudged=True)
        except Exception as error:
            raise self._gate.fail(error) from error
        self.watch(pred, said.score)
        return dspy.Prediction(score=said.score, feedback=said.feedback, unjudged=False)


def _parsed(trace: Any) -> Any:
    """A trace without the replies that could not be parsed, which GEPA alone understands."""
    return trace and [call for call in trace if not isinstance(call[2], FailedPrediction)]


def read_call(pred_name: str, pred_trace: Any) -> PredictorCall | None:
    """The call that GEPA asks for feedback on; None if the predictor's part is not known.

    Its trace is the predictor, its inputs and its outputs, in a list.
    """
    if not pred_trace:
        return None
    predictor, inputs, outputs = pred_trace[0]
    role = role_of(predictor.signature)
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
