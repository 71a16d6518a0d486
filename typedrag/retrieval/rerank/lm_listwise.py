"""A reranker that asks the LM for the order of several passages at once, in a window that slides over
them: the list-wise baseline of RichRAG (section 4.2; Sun et al. 2023, https://arxiv.org/abs/2304.09542).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import dspy

from typedrag.errors import StepFailed
from typedrag.lms.asking import ask
from typedrag.lms.trail import fall_back, lm_calls_left, record
from typedrag.records import Passage, Step
from typedrag.retrieval.rerank.lm_pointwise import PASSAGE_WORDS
from typedrag.signatures import OrderPassages
from typedrag.signatures.fields import number_passages

STEP = "order"


class ListwiseLMReranker:
    """Lets the LM in use order windows of passages, from the last ones up to the first.

    Windows overlap, so that a good passage rises through them. Passages that the LM does not name
    come behind those it names. A window whose reply cannot be read stays as it is; where the
    question's LM calls do not suffice for all windows, the windows furthest down do.

    Args:
        window: Passages ordered in a call.
        step: By how many passages the window moves up.
        passage_words: That the LM gets to see of each; by default as many as that of the program which
            has the reranker, else 200.
        retries: How often a reply that cannot be parsed is asked for again.
    """

    def __init__(self, window: int = 10, step: int = 5, passage_words: int | None = None, retries: int = 1) -> None:
        self._window = window
        self._step = step
        self._passage_words = passage_words
        self._retries = retries
        self._order = dspy.Predict(OrderPassages)

    def reading(self, passage_words: int) -> ListwiseLMReranker:
        """The same for a program whose LM sees so many words of a passage; see `reader`."""
        return ListwiseLMReranker(self._window, self._step, self._passage_words or passage_words, self._retries)

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The first `k` passages of the order; scores are 1 / place. See `Reranker.rerank`.

        Raises:
            LMUnavailable: If the LM cannot be used.
        """
        ranked = list(passages)
        wanted = windows(len(ranked), self._window, self._step)
        affordable = lm_calls_left(default=len(wanted))
        unaffordable = len(wanted) - affordable
        if unaffordable > 0:
            dropped = tuple(f"window from {start + 1} (no LM calls left for it)" for start in wanted[:unaffordable])
            record(Step(STEP, f"{affordable} of {len(wanted)} windows", dropped=dropped))
        for start in wanted[max(0, unaffordable) :]:
            end = start + self._window
            ranked[start:end] = self._ordered(query, ranked[start:end])
        return [replace(p, score=1 / place) for place, p in enumerate(ranked[:k], 1)]

    def _ordered(self, query: str, passages: list[Passage]) -> list[Passage]:
        if len(passages) < 2:
            return passages
        shown = number_passages(passages, self._passage_words or PASSAGE_WORDS)
        try:
            reply = ask(STEP, self._order, retries=self._retries, passages=shown, question=query)
        except StepFailed as failure:
            fall_back(failure, f"{len(passages)} passages left in their order")
            return passages
        named = [n for n in dict.fromkeys(reply.prediction.order.root) if n <= len(passages)]
        order = [*named, *(n for n in range(1, len(passages) + 1) if n not in named)]
        ordered = [passages[n - 1] for n in order]
        ids = tuple(p.id for p in ordered)
        record(Step(STEP, query, f"{len(named)} named", passage_ids=ids, usage=reply.usage, seconds=reply.seconds))
        return ordered


def windows(count: int, size: int, step: int) -> list[int]:
    """Where the windows over a list begin, the last one first; the first one begins at 0.

    Example:
        >>> windows(20, size=10, step=5), windows(12, size=10, step=5), windows(7, size=10, step=5)
        ([10, 5, 0], [2, 0], [0])
    """
    starts = list(range(count - size, 0, -step))
    return [*starts, 0]
