"""A make without an LM, and the LM for the passages that it is unsure of."""

from __future__ import annotations

from collections.abc import Sequence

from typedrag.errors import StepFailed
from typedrag.lms.trail import fall_back
from typedrag.records import Passage
from typedrag.retrieval.gate.gate import Probability, ProbabilityGate
from typedrag.retrieval.gate.lm import LMGate


class CascadeGate(ProbabilityGate):
    """Asks the LM about those passages alone whose probability by another make is unsure, in one call.

    That is from the threshold to 1 - threshold: what is below is dropped, and what is above is of no use as
    seldom as that. If the LM fails, the first make's probabilities stand.

    Args:
        first: Asked about every passage; its threshold is that of both.
        second: Asked about those of which the first is unsure, or knows nothing.
    """

    lm_calls = 1

    def __init__(self, first: ProbabilityGate, second: LMGate) -> None:
        super().__init__(first.threshold)
        self.first = first
        self.second = second

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """Of each passage; see `ProbabilityGate.probabilities`."""
        probabilities = self.first.probabilities(query, passages)
        low, high = self.threshold, 1 - self.threshold
        unsure = [i for i, p in enumerate(probabilities) if p is None or low <= p <= high]
        if not unsure:
            return probabilities
        try:
            verdicts = self.second.verdicts(query, [passages[i] for i in unsure])
        except StepFailed as failure:
            fall_back(failure, "passages are kept or dropped as without the LM")
            return probabilities
        for i, verdict in zip(unsure, verdicts, strict=True):
            probabilities[i] = verdict
        return probabilities
