"""A metric of one's own."""

from typing import ClassVar

import dspy

from typedrag.metrics import Metric, Scored


class Brevity(Metric):
    """1 for an answer of at most 40 words, less the longer it is."""

    name: ClassVar[str] = "brevity"

    def score(self, gold: dspy.Example, pred: dspy.Prediction) -> Scored:
        """The share of the words that are allowed, and their number for tables; see `Metric.score`."""
        words = len(pred.answer.split())
        brief = min(1.0, 40 / words) if words else 0.0
        return Scored(brief, f"The answer has {words} words.", measures={"brief": brief, "words": words})
