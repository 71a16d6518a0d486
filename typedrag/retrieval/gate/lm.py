"""The makes of gates that ask the LM: about all passages in one call, or only about the unsure ones."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from typedrag.errors import StepFailed
from typedrag.lms.asking import allow_tokens, ask, with_settings
from typedrag.lms.trace import add_step, record_fallback, reserve_calls
from typedrag.records import Passage, Step
from typedrag.retrieval.gate.gate import Gate, Probability
from typedrag.signatures import JudgePassages
from typedrag.signatures.fields import number_passages
from typedrag.signatures.keyed import exactly, keyed, values

_TOKENS_A_VERDICT = 12


class LMGate(Gate):
    """Keeps the passages that the LM in use finds useful: probabilities are 1 or 0.

    If no reply can be read, or only the LM call for the answer is left, all passages are kept.

    Args:
        passage_words: Words of each passage that the LM sees.
        retries: The number of times that a reply which cannot be parsed is asked for again.
    """

    lm_calls = 1

    def __init__(self, threshold: float, passage_words: int, retries: int) -> None:
        super().__init__(threshold)
        self.predict = dspy.Predict(JudgePassages)
        self._passage_words = passage_words
        self._retries = retries

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """The LM's verdict on each passage, or None for all if it gives none; see `Gate.probabilities`."""
        try:
            return self.verdicts(query, passages)
        except StepFailed as failure:
            record_fallback(failure, "no passage is dropped")
            return [None] * len(passages)

    def verdicts(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """The LM's verdict on each passage: 1 for useful, 0 for not.

        Raises:
            StepFailed: If no reply can be parsed, or no call is left.
        """
        shown = keyed(number_passages(passages, self._passage_words), "p")
        with reserve_calls(1):  # for the answer
            reply = ask(
                "judge relevance",
                with_settings(self.predict, allow_tokens(len(passages) * _TOKENS_A_VERDICT)),
                retries=self._retries,
                signature=exactly(self.predict.signature, shown),
                passages=shown,
                question=query,
            )
        relevant = [float(verdict) for verdict in values(reply.prediction.relevant)]
        summary = f"{sum(relevant):.0f} of {len(passages)} of use"
        add_step(Step("judge relevance", query, summary, seconds=reply.seconds, usage=reply.usage))
        return [*relevant]


class CascadeGate(Gate):
    """Asks the LM, in one call, only about the passages of which another gate is unsure.

    Unsure are probabilities from the threshold to 1 - threshold: passages below are dropped, those above kept.
    If the LM fails, the first gate's probabilities stand.

    Args:
        first: Asked about every passage; its threshold is the threshold of both.
        second: Asked about the passages of which the first is unsure, or knows nothing.
    """

    lm_calls = 1

    def __init__(self, first: Gate, second: LMGate) -> None:
        super().__init__(first.threshold)
        self.first = first
        self.second = second

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """The first gate's probabilities, with the LM's verdicts where it is unsure; see `Gate.probabilities`."""
        probabilities = self.first.probabilities(query, passages)
        low, high = self.threshold, 1 - self.threshold
        unsure = [i for i, p in enumerate(probabilities) if p is None or low <= p <= high]
        if not unsure:
            return probabilities
        try:
            verdicts = self.second.verdicts(query, [passages[i] for i in unsure])
        except StepFailed as failure:
            record_fallback(failure, "passages are kept or dropped as without the LM")
            return probabilities
        for i, verdict in zip(unsure, verdicts, strict=True):
            probabilities[i] = verdict
        return probabilities
