"""From verdicts on two answers, asked for in both orders, to wins, ties, losses and a win-rate matrix
(sub-question coverage, section 5).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from typedrag.signatures.pairwise import Verdict


class Outcome(StrEnum):
    """How an answer fared against another.

    Example:
        >>> Outcome.WIN.reversed, Outcome.TIE.points
        (<Outcome.LOSS: 'loss'>, 0.5)
    """

    WIN = "win"
    TIE = "tie"
    LOSS = "loss"

    @property
    def reversed(self) -> Outcome:
        """How the other one fared."""
        return _REVERSED[self]

    @property
    def points(self) -> float:
        """What it counts in a win rate: a tie is half a win."""
        return _POINTS[self]


_REVERSED = {Outcome.WIN: Outcome.LOSS, Outcome.TIE: Outcome.TIE, Outcome.LOSS: Outcome.WIN}
_POINTS = {Outcome.WIN: 1.0, Outcome.TIE: 0.5, Outcome.LOSS: 0.0}


def combine(forward: Verdict, backward: Verdict) -> Outcome:
    """How an answer fared, from verdicts in both orders.

    It wins if it is preferred in both, and loses if the other one is. All else is a tie: a
    preference that comes and goes with the order is the judge's for a place, not for an answer.

    Args:
        forward: With the answer in the first place.
        backward: With the answer in the second place.

    Example:
        >>> combine("first", "second")
        <Outcome.WIN: 'win'>
        >>> combine("first", "first"), combine("first", "tie")
        (<Outcome.TIE: 'tie'>, <Outcome.TIE: 'tie'>)
    """
    if (forward, backward) == ("first", "second"):
        return Outcome.WIN
    if (forward, backward) == ("second", "first"):
        return Outcome.LOSS
    return Outcome.TIE


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the answer of one program to a question fared against that of another.

    Attributes:
        program: Its name.
        other: The name of the one it is compared with.
        outcome: How the first fared.
    """

    program: str
    other: str
    outcome: Outcome


def win_rates(comparisons: Iterable[Comparison]) -> dict[str, dict[str, float]]:
    """How often each program beats each other one, a tie being half a win (table 4).

    Returns:
        Shares from 0 to 1, by program and then by the one it is compared with. A cell and its
        mirror sum to 1. Pairs that were never compared, and a program with itself, are absent.

    Raises:
        ValueError: If a program is compared with itself.

    Example:
        >>> win_rates([Comparison("rag", "lm", Outcome.WIN), Comparison("lm", "rag", Outcome.TIE)])
        {'rag': {'lm': 0.75}, 'lm': {'rag': 0.25}}
    """
    points: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for c in comparisons:
        if c.program == c.other:
            raise ValueError(f"'{c.program}' is compared with itself")
        points[c.program][c.other].append(c.outcome.points)
        points[c.other][c.program].append(c.outcome.reversed.points)
    return {
        program: {other: sum(found) / len(found) for other, found in row.items()} for program, row in points.items()
    }
