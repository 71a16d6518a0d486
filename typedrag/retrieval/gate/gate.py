"""What every gate is."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from typedrag.lms.trail import Stopwatch, record, recording
from typedrag.records import Passage, Step

Probability = float | None
"""That a passage is of use for a question; None where it is not known, so that the passage is kept."""


class Gate(dspy.Module):
    """Stands between retrieval and answer: what does not pass is not shown to the LM that answers.

    Passages pass whose probability is not below a threshold.

    Args:
        threshold: 0 to 1.
    """

    lm_calls = 0
    """What one question takes, at most and retries aside."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """Of each passage, in their order: what a make's own file writes. There is at least one passage."""
        raise NotImplementedError

    def passing(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """Those of the passages that are of use for a question, in their order; possibly none.

        What is dropped and why is recorded as a step.

        Raises:
            LMUnavailable: If the gate asks an LM that cannot be used.
            RetrievalError: If it needs a model that is not on this machine or cannot be loaded.
        """
        if not passages:
            return []
        watch = Stopwatch()
        with recording() as steps:
            probabilities = self.probabilities(query, passages)
        judged = list(zip(passages, probabilities, strict=True))
        kept = [passage for passage, p in judged if p is None or p >= self.threshold]
        record(
            Step(
                "relevance",
                query,
                f"{len(kept)} of {len(passages)} passages",
                passage_ids=tuple(passage.id for passage in kept),
                dropped=tuple(
                    f"passage {passage.id} (not relevant: {p:.2f}, below {self.threshold:g})"
                    for passage, p in judged
                    if p is not None and p < self.threshold
                ),
                seconds=watch.seconds,
                steps=tuple(steps),
            )
        )
        return kept
