"""Which of two answers is better? A judge that is asked in both orders (sub-question coverage, section 5)."""

from __future__ import annotations

from typing import NamedTuple

import dspy

from typedrag.asking import ask
from typedrag.metrics.judgments import Judgments
from typedrag.signatures import CompareAnswers, predictor
from typedrag.signatures.pairwise import Verdict


class PairwiseJudge(dspy.Module):
    """Says which of two answers is better, in the order that they are given in.

    Judges favour a place, mostly the first: use `compare_in_both_orders`.

    Args:
        retries: How often a reply that cannot be parsed is asked for again.
    """

    def __init__(self, retries: int = 2) -> None:
        super().__init__()
        self.compare = predictor(CompareAnswers)
        self._retries = retries

    def forward(self, question: str, first_answer: str, second_answer: str) -> dspy.Prediction:
        """The `verdict`: first, second or tie.

        Raises:
            StepFailed: If no reply can be parsed.
            LMUnavailable: If the LM cannot be reached.
        """
        reply = ask(
            "compare",
            self.compare,
            retries=self._retries,
            question=question,
            first_answer=first_answer,
            second_answer=second_answer,
        )
        return dspy.Prediction(verdict=reply.prediction.verdict)


class Verdicts(NamedTuple):
    """What a judge says of one answer and another, each by its place in the prompt.

    Attributes:
        forward: With the one answer first.
        backward: With the other answer first.
    """

    forward: Verdict
    backward: Verdict


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
        return Verdicts("tie", "tie")

    def verdict(first: str, second: str) -> Verdict:
        inputs = {"question": question, "first_answer": first, "second_answer": second}
        return judgments.get_or_make(judge, inputs, lambda: {"verdict": judge(**inputs).verdict})["verdict"]

    return Verdicts(verdict(answer, other), verdict(other, answer))
