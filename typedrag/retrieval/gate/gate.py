"""The interface of all gates."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from typedrag.lms.trace import Stopwatch, add_step, collect_steps
from typedrag.records import Passage, Step

Probability = float | None
"""The probability that a passage is of use for a question; None if unknown, in which case the passage is kept."""


class Gate(dspy.Module):
    """Drops passages of no use between retrieval and answer, so that the answering LM does not see them.

    It keeps passages whose probability is not below a threshold.

    Args:
        threshold: A probability, 0 to 1.
    """

    lm_calls = 0
    """LM calls for one question at most, retries aside."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """The probability of each passage, in their order; each make implements it. There is at least one passage."""
        raise NotImplementedError

    def passing(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """The passages that are of use for a question, in their order; possibly none.

        Dropped passages are recorded as a step, with the reason.

        Raises:
            LMUnavailable: If the gate asks an LM that cannot be used.
            RetrievalError: If the gate needs a model that is not on this machine or cannot be loaded.
        """
        if not passages:
            return []
        watch = Stopwatch()
        with collect_steps() as steps:
            probabilities = self.probabilities(query, passages)
        judged = list(zip(passages, probabilities, strict=True))
        useful = [passage for passage, p in judged if p is None or p >= self.threshold]
        add_step(
            Step(
                "relevance",
                query,
                f"{len(useful)} of {len(passages)} passages",
                passage_ids=tuple(passage.id for passage in useful),
                dropped=tuple(
                    f"passage {passage.id} (not relevant: {p:.2f}, below {self.threshold:g})"
                    for passage, p in judged
                    if p is not None and p < self.threshold
                ),
                seconds=watch.seconds,
                steps=tuple(steps),
            )
        )
        return useful
