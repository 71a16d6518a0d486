"""Which of two answers is better? A judge that is asked in both orders (sub-question coverage, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, get_args

import dspy

from typedrag.lms.asking import ask
from typedrag.lms.call_settings import with_settings
from typedrag.lms.token_probabilities import call_for_probabilities, label_probabilities
from typedrag.metrics.judges.judgments import Judgments, asked_without_probabilities
from typedrag.signatures import CompareAnswers, predictor
from typedrag.signatures.pairwise import Verdict

TIED = 0.5
_POINTS_OF_FIRST: Mapping[str, float] = {"first": 1.0, "tie": TIED, "second": 0.0}


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
        return PairwiseOutcome({"win": "loss", "loss": "win"}.get(self, self))

    @property
    def points(self) -> float:
        """What it counts in a win rate: a tie is half a win."""
        return {"win": 1.0, "tie": TIED, "loss": 0.0}[self]


class PairwiseJudge(dspy.Module):
    """Says which of two answers is better, in the order that they are given in.

    Judges favour a place, mostly the first: use `compare_in_both_orders`.

    Args:
        retries: How often a reply that cannot be parsed is asked for again.
        token_probabilities: Whether to ask servers that can for the probabilities of all verdicts. Some
            models of OpenAI refuse to give them.
    """

    def __init__(self, retries: int = 2, token_probabilities: bool = True) -> None:
        super().__init__()
        self.compare = predictor(CompareAnswers)
        self._retries = retries
        self.token_probabilities = token_probabilities

    def forward(self, question: str, first_answer: str, second_answer: str) -> dspy.Prediction:
        """The `verdict`, first, second or tie, and the `probabilities` of all three.

        Returns:
            Prediction: Where the LM's server gives no token probabilities, `probabilities` is None.

        Raises:
            StepFailed: If no reply can be parsed.
            LMUnavailable: If the LM cannot be reached.
        """
        settings = call_for_probabilities() if self.token_probabilities else {}
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
    """What a judge says of one answer and another, each by its place in the prompt.

    Attributes:
        forward: With the one answer first.
        backward: With the other answer first.
        preference: From 0 to 1, how probable the judge holds the one to be the better, half of a tie's
            probability included, on average of both orders: a liking for a place that is as strong in both
            cancels out. None where no token probabilities are known.
    """

    forward: Verdict
    backward: Verdict
    preference: float | None = None

    @property
    def outcome(self) -> PairwiseOutcome:
        """How the one fared against the other: it wins if it is preferred in both orders, and loses if the other is.

        All else is a tie: a preference that comes and goes with the order is for a place, not for an answer.

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
        """1 where the one is held the likelier to be the better, however narrowly, and 0 where the other is.

        A small LM calls nearly all a tie, or prefers a place: then its verdicts say nothing, and this does.
        """
        if self.preference is None:
            return None
        return TIED if self.preference == TIED else float(self.preference > TIED)


def points_of_first(verdict: Verdict) -> float:
    """What a verdict counts for the answer in the first place."""
    return _POINTS_OF_FIRST[verdict]


def compare_in_both_orders(
    judge: dspy.Module, judgments: Judgments, question: str, answer: str, other: str
) -> Verdicts:
    """Compare two answers in both orders; each verdict is stored by itself.

    Equal answers are a tie, and no LM is asked.

    Raises:
        StepFailed: If no reply can be parsed in one of the orders.
        LMUnavailable: If the LM cannot be reached.
    """
    if answer == other:
        return Verdicts("tie", "tie", TIED)

    def judgment(first: str, second: str) -> dict[str, Any]:
        inputs = {"question": question, "first_answer": first, "second_answer": second}

        def make() -> dict[str, Any]:
            said = judge(**inputs)
            return {"verdict": said.verdict, "probabilities": said.probabilities}

        return judgments.get_or_make(judge, {**inputs, **asked_without_probabilities(judge)}, make)

    forward, backward = judgment(answer, other), judgment(other, answer)
    for_one, for_other = _expected_points(forward), _expected_points(backward)
    preference = None if for_one is None or for_other is None else (for_one + 1 - for_other) / 2
    return Verdicts(forward["verdict"], backward["verdict"], preference)


def _expected_points(judgment: Mapping[str, Any]) -> float | None:
    """Of the answer in the first place; None where no probabilities are known, as of older judgments."""
    if not (probabilities := judgment.get("probabilities")):
        return None
    return sum(_POINTS_OF_FIRST[verdict] * probability for verdict, probability in probabilities.items())
