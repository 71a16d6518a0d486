"""Rerankers that ask the LM in use: about each passage alone, and for the order of several in a window that slides over
them: RichRAG's point-wise and list-wise baselines (section 4.2; Sun et al. 2023, https://arxiv.org/abs/2304.09542).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import dspy

from typedrag.errors import StepFailed
from typedrag.lms.asking import ask
from typedrag.lms.trail import fall_back, lm_calls_left, record, recording, run_concurrently
from typedrag.records import Passage, Step
from typedrag.signatures import GradePassage, OrderPassages
from typedrag.signatures.fields import PromptPassage, number_passages

UNGRADED = -1.0
_GRADE, _ORDER = "grade", "order"
_PASSAGE_WORDS = 200
"""That an LM sees of a passage where no program says it."""


class LMReranker:
    """What both have in common.

    Args:
        signature: What the LM is asked.
        passage_words: That the LM gets to see of each passage; by default as many as that of the program which
            has the reranker, else 200.
        retries: How often a reply that cannot be parsed is asked for again.
    """

    def __init__(self, signature: type[dspy.Signature], *, passage_words: int | None = None, retries: int = 1) -> None:
        self._predict = dspy.Predict(signature)
        self._passage_words = passage_words
        self._retries = retries

    def reading(self, passage_words: int) -> Self:
        """The same for a program whose LM sees so many words of a passage; see `reader`."""
        other = copy.copy(self)
        other._passage_words = self._passage_words or passage_words
        return other

    def _shown(self, passages: Sequence[Passage]) -> list[PromptPassage]:
        return number_passages(passages, self._passage_words or _PASSAGE_WORDS)


class PointwiseLMReranker(LMReranker):
    """Ranks passages by the grades 0 to 3 that the LM in use gives them, one call each.

    Where the question's LM calls do not suffice for all passages, the last ones stay
    ungraded: they come behind the others, as do those whose grade cannot be read, with the score `UNGRADED`.

    Args:
        threads: Passages graded at once.
        options: Of `LMReranker`.
    """

    def __init__(self, threads: int = 8, **options: Any) -> None:
        super().__init__(GradePassage, **options)
        self._threads = threads

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The `k` passages with the highest grades; see `Reranker.rerank`.

        Raises:
            LMUnavailable: If the LM cannot be used.
        """
        affordable = lm_calls_left(default=len(passages))
        with recording() as steps:
            grades = run_concurrently(lambda p: self._grade_of(query, p), list(passages[:affordable]), self._threads)
        left = passages[affordable:]
        dropped = tuple(f"{p.id} (no LM calls left to grade it)" for p in left)
        said = f"a higher max_lm_calls would grade {len(left)} more" if left else ""
        record(Step("grades", f"{len(grades)} passages", said, dropped=dropped, steps=tuple(steps)))
        scored = [replace(p, score=g) for p, g in zip(passages, [*grades, *[UNGRADED] * len(left)], strict=True)]
        return sorted(scored, key=lambda p: -p.score)[:k]

    def _grade_of(self, query: str, passage: Passage) -> float:
        [shown] = self._shown([passage])
        try:
            reply = ask(_GRADE, self._predict, retries=self._retries, passage=shown, question=query)
        except StepFailed as failure:
            fall_back(failure, "the passage stays ungraded")
            return UNGRADED
        grade = reply.prediction.grade
        record(Step(_GRADE, passage.id, str(grade), usage=reply.usage, seconds=reply.seconds))
        return float(grade)


class ListwiseLMReranker(LMReranker):
    """Lets the LM in use order windows of passages, from the last ones up to the first.

    Windows overlap, so that a good passage rises through them. Passages that the LM does not name
    come behind those it names. A window whose reply cannot be read stays as it is; where the
    question's LM calls do not suffice for all windows, the windows furthest down do.

    Args:
        window: Passages ordered in a call.
        step: By how many passages the window moves up.
        options: Of `LMReranker`.
    """

    def __init__(self, window: int = 10, step: int = 5, **options: Any) -> None:
        super().__init__(OrderPassages, **options)
        self._window = window
        self._step = step

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
            record(Step(_ORDER, f"{affordable} of {len(wanted)} windows", dropped=dropped))
        for start in wanted[max(0, unaffordable) :]:
            end = start + self._window
            ranked[start:end] = self._ordered(query, ranked[start:end])
        return [replace(p, score=1 / place) for place, p in enumerate(ranked[:k], 1)]

    def _ordered(self, query: str, passages: list[Passage]) -> list[Passage]:
        if len(passages) < 2:
            return passages
        try:
            reply = ask(_ORDER, self._predict, retries=self._retries, passages=self._shown(passages), question=query)
        except StepFailed as failure:
            fall_back(failure, f"{len(passages)} passages left in their order")
            return passages
        named = [n for n in dict.fromkeys(reply.prediction.order.root) if n <= len(passages)]
        order = [*named, *(n for n in range(1, len(passages) + 1) if n not in named)]
        ordered = [passages[n - 1] for n in order]
        ids = tuple(p.id for p in ordered)
        record(Step(_ORDER, query, f"{len(named)} named", passage_ids=ids, usage=reply.usage, seconds=reply.seconds))
        return ordered


def windows(count: int, size: int, step: int) -> list[int]:
    """Where the windows over a list begin, the last one first; the first one begins at 0.

    Example:
        >>> windows(20, size=10, step=5), windows(12, size=10, step=5), windows(7, size=10, step=5)
        ([10, 5, 0], [2, 0], [0])
    """
    starts = list(range(count - size, 0, -step))
    return [*starts, 0]
