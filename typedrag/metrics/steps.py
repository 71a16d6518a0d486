"""The number of retrieval-generation cycles of an answer (HANRAG, section 5: steps)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import dspy

from typedrag.core.errors import NotMeasurable
from typedrag.core.records import ELSEWHERE, Step
from typedrag.metrics.metric import Metric, Scored, metric

_AT_ONCE = "sub-queries"
"""The step whose sub-steps run at once."""


def retrieval_cycles(steps: Iterable[Step]) -> int:
    """The number of successive cycles of retrieval and generation.

    Queries that are retrieved for at once are one cycle, and of sub-queries that are answered at
    once only the longest counts (HANRAG, table 8: two parallel retrievals are one step).

    Example:
        >>> way = Step("sub-query", steps=(Step("retrieve"), Step("answer"), Step("retrieve"), Step("answer")))
        >>> retrieval_cycles([Step("retrieve"), Step("sub-queries", steps=(way, way))])
        3
    """
    return sum(_cycles(step) for step in steps)


def _cycles(step: Step) -> int:
    if step.name == "retrieve":
        return 1
    if step.name == _AT_ONCE:
        return max((_cycles(way) for way in step.steps), default=0)
    return retrieval_cycles(step.steps)


def knows_steps(prediction: dspy.Prediction) -> bool:
    """False if an answer was made elsewhere, so that nothing is known of its making.

    Example:
        >>> knows_steps(dspy.Prediction(steps=(Step(ELSEWHERE),))), knows_steps(dspy.Prediction(steps=()))
        (False, True)
    """
    return all(step.name != ELSEWHERE for step in prediction.get("steps") or ())


def knows_passages(prediction: dspy.Prediction) -> bool:
    """False if an answer was made elsewhere and does not tell its passages."""
    return bool(prediction.get("passages")) or knows_steps(prediction)


def require_passages(prediction: dspy.Prediction) -> None:
    """Raise `NotMeasurable` if an answer that was made elsewhere does not tell its passages."""
    if not knows_passages(prediction):
        raise NotMeasurable("the answer was made elsewhere, and does not tell which passages it was written from")


def require_steps(prediction: dspy.Prediction) -> None:
    """Raise `NotMeasurable` if an answer was made elsewhere."""
    if not knows_steps(prediction):
        raise NotMeasurable("the answer was made elsewhere, and does not tell how it was searched for")


@metric
class Steps(Metric):
    """The retrieval-generation cycles of an answer, fewer being better.

    Measure: `steps`, the count. The score is 1 / (1 + steps).
    """

    name: ClassVar[str] = "steps"
    measures = ("steps",)

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Count the cycles in the steps that the program recorded."""
        require_steps(prediction)
        cycles = retrieval_cycles(prediction.get("steps") or ())
        return Scored(1 / (1 + cycles), f"{cycles} retrieval-generation cycles", {"steps": float(cycles)})
