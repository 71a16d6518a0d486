"""A judge of which of two answers is better, asked in both orders (sub-question coverage, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, get_args

import dspy

from typedrag.lms.asking import ask, with_settings
from typedrag.lms.logprobs import label_probabilities, logprob_settings
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.judging import CompareAnswers, Verdict

TIED = 0.5
_POINTS_OF_FIRST: Mapping[str, float] = {"first": 1.0, "tie": TIED, "second": 0.0}


class PairwiseOutcome(StrEnum):
    """The outcome of comparing an answer with another.

    Example:
        >>> PairwiseOutcome.WIN.reversed, PairwiseOutcome.TIE.points
        (<PairwiseOutcome.LOSS: 'loss'>, 0.5)
    """

    WIN = "win"
    TIE = "tie"
    LOSS = "loss"

    @property
    def reversed(self) -> PairwiseOutcome:
        """The outcome for the other answer."""
        return PairwiseOutcome({"win": "loss", "loss": "win"}.get(self, self))

    @property
    def points(self) -> float:
        """The points in a win rate: a tie is half a win."""
        return {"win": 1.0, "tie": TIED, "loss": 0.0}[self]


class PairwiseJudge(dspy.Module):
    """Says which of two answers is better, in one order.

    Judges favour a place, mostly the first: use `compare_in_both_orders`.

    Args:
        retries: How often to ask again for a reply that cannot be parsed.
        token_probabilities: Whether to ask the server for the probabilities of all verdicts. Some models
            of OpenAI refuse to give them.
    """

    def __init__(self, retries: int = 2, token_probabilities: bool = True) -> None:
        super().__init__()
        self.compare = predictor(CompareAnswers)
        self._retries = retries
        self.token_probabilities = token_probabilities

    def forward(self, question: str, first_answer: str, second_answer: str) -> dspy.Prediction:
        """A prediction with the `verdict`, first, second or tie, and the `probabilities` of all three.

        Returns:
            Prediction: `probabilities` is None if the LM's server gives no token probabilities.
        """
        settings = logprob_settings() if self.token_probabilities else {}
        reply = ask(
            "compare",
            with_settings(self.compare, settings),
            retries=self._retries,
            question=question,
            first_answer=first_answer,
            second_answer=second_answer,
        ).prediction
        probabilities = label_probabilities(reply.get("logprobs"), reply.verdict, get_args(Verdict))
        return dspy.Prediction(verdict=reply.verdict, probabilities=probabilities)


class Verdicts(NamedTuple):
    """The verdicts on two answers, in both orders.

    Attributes:
        forward: The verdict with the one answer first.
        backward: The verdict with the other answer first.
        preference: The judge's probability that the one is better, plus half of that of a tie, as the mean of
            both orders: a preference for a place cancels out if it is equally strong in both. None if no token
            probabilities are known.
    """

    forward: Verdict
    backward: Verdict
    preference: float | None = None

    @property
    def outcome(self) -> PairwiseOutcome:
        """The outcome for the one answer: a win if it is preferred in both orders, a loss if the other is, else a tie.

        A preference that changes with the order is for a place, not for an answer.

        Example:
            >>> Verdicts("first", "second").outcome, Verdicts("first", "first").outcome
            (<PairwiseOutcome.WIN: 'win'>, <PairwiseOutcome.TIE: 'tie'>)
        """
        both = (self.forward, self.backward)
        if both == ("first", "second"):
            return PairwiseOutcome.WIN
        return PairwiseOutcome.LOSS if both == ("second", "first") else PairwiseOutcome.TIE

    @property
    def likelier(self) -> float | None:
        """1 if the one answer is more likely the better, however narrowly, 0 if the other is.

        A small LM calls nearly all a tie, or prefers a place: then its verdicts say nothing, but this does.
        """
        if self.preference is None:
            return None
        return TIED if self.preference == TIED else float(self.preference > TIED)


def points_of_first(verdict: Verdict) -> float:
    """The points of a verdict for the answer in the first place."""
    return _POINTS_OF_FIRST[verdict]


def compare_in_both_orders(judge: dspy.Module, question: str, answer: str, other: str) -> Verdicts:
    """Compare two answers in both orders. Equal answers are a tie; no LM is asked."""
    if answer == other:
        return Verdicts("tie", "tie", TIED)
    forward = judge(question=question, first_answer=answer, second_answer=other)
    backward = judge(question=question, first_answer=other, second_answer=answer)
    for_one, for_other = _expected_points(forward.probabilities), _expected_points(backward.probabilities)
    preference = None if for_one is None or for_other is None else (for_one + 1 - for_other) / 2
    return Verdicts(forward.verdict, backward.verdict, preference)


def _expected_points(probabilities: Mapping[str, float] | None) -> float | None:
    """The expected points of the answer in the first place; None without probabilities."""
    if not probabilities:
        return None
    return sum(_POINTS_OF_FIRST[verdict] * probability for verdict, probability in probabilities.items())
