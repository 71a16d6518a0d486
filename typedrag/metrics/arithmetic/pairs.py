"""From verdicts on two answers, asked for in both orders, to wins, ties and losses
(sub-question coverage, section 5).
"""

from __future__ import annotations

from enum import StrEnum

from typedrag.signatures.pairwise import Verdict


class PairwiseOutcome(StrEnum):
    """How an answer fared against another.

    Example:
        >>> PairwiseOutcome.WIN.reversed, PairwiseOutcome.TIE.points
        (<PairwiseOutcome.LOSS: 'loss'>, 0.5)
    """

    WIN = "win"
    TIE = "tie"
    LOSS = "loss"

    @property
    def reversed(self) -> PairwiseOutcome:
        """How the other one fared."""
        return _REVERSED[self]

    @property
    def points(self) -> float:
        """What it counts in a win rate: a tie is half a win."""
        return _POINTS[self]


_REVERSED = {
    PairwiseOutcome.WIN: PairwiseOutcome.LOSS,
    PairwiseOutcome.TIE: PairwiseOutcome.TIE,
    PairwiseOutcome.LOSS: PairwiseOutcome.WIN,
}
_POINTS = {PairwiseOutcome.WIN: 1.0, PairwiseOutcome.TIE: 0.5, PairwiseOutcome.LOSS: 0.0}


def combine(forward: Verdict, backward: Verdict) -> PairwiseOutcome:
    """How an answer fared, from verdicts in both orders.

    It wins if it is preferred in both, and loses if the other one is. All else is a tie: a
    preference that comes and goes with the order is the judge's for a place, not for an answer.

    Args:
        forward: With the answer in the first place.
        backward: With the answer in the second place.

    Example:
        >>> combine("first", "second")
        <PairwiseOutcome.WIN: 'win'>
        >>> combine("first", "first"), combine("first", "tie")
        (<PairwiseOutcome.TIE: 'tie'>, <PairwiseOutcome.TIE: 'tie'>)
    """
    if (forward, backward) == ("first", "second"):
        return PairwiseOutcome.WIN
    if (forward, backward) == ("second", "first"):
        return PairwiseOutcome.LOSS
    return PairwiseOutcome.TIE
