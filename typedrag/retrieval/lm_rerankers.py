"""Rerankers that ask the LM in use: for a grade of each passage, or for the order of a sliding window of
them: RichRAG's point-wise and list-wise baselines (section 4.2; Sun et al. 2023, https://arxiv.org/abs/2304.09542).
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.records import Passage, Step
from typedrag.lms.asking import ask
from typedrag.lms.trace import add_step, calls_left, collect_steps, record_fallback, run_concurrently
from typedrag.retrieval.rerankers import windows
from typedrag.signatures.fields import PromptPassage, number_passages
from typedrag.signatures.judging import GradePassage, OrderPassages

UNGRADED = -1.0
_GRADE, _ORDER = "grade", "order"
_PASSAGE_WORDS = 200  # words of a passage that an LM sees where no program says how many


class LMReranker:
    """The base of both: shows the LM `passage_words` of a passage, by default as many as the program does, else 200."""

    def __init__(self, signature: type[dspy.Signature], *, passage_words: int | None = None, retries: int = 1) -> None:
        self._predict, self._passage_words, self._retries = dspy.Predict(signature), passage_words, retries

    def reading(self, passage_words: int) -> Self:
        """A copy for a program whose LM sees this many words of a passage; see `reader`."""
        other = copy.copy(self)
        other._passage_words = self._passage_words or passage_words
        return other

    def _shown(self, passages: Sequence[Passage]) -> list[PromptPassage]:
        return number_passages(passages, self._passage_words or _PASSAGE_WORDS)


class PointwiseLMReranker(LMReranker):
    """Ranks passages by grades 0 to 3 from the LM in use, one call each.

    If the question has too few LM calls left for all passages, the last ones stay ungraded. They come behind
    the others with the score `UNGRADED`, as do those whose grade cannot be read.
    """

    def __init__(self, threads: int = 8, **options: Any) -> None:
        super().__init__(GradePassage, **options)
        self._threads = threads

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        affordable = calls_left(default=len(passages))
        with collect_steps() as steps:
            grades = run_concurrently(lambda p: self._ask_grade(query, p), list(passages[:affordable]), self._threads)
        left = passages[affordable:]
        dropped = tuple(f"{p.id} (no LM calls left to grade it)" for p in left)
        advice = f"a higher max_lm_calls would grade {len(left)} more" if left else ""
        add_step(Step("grades", f"{len(grades)} passages", advice, dropped=dropped, steps=tuple(steps)))
        scored = [replace(p, score=g) for p, g in zip(passages, [*grades, *[UNGRADED] * len(left)], strict=True)]
        return sorted(scored, key=lambda p: -p.score)[:k]

    def _ask_grade(self, query: str, passage: Passage) -> float:
        [shown] = self._shown([passage])
        try:
            reply = ask(_GRADE, self._predict, retries=self._retries, passage=shown, question=query)
        except StepFailed as failure:
            record_fallback(failure, "the passage stays ungraded")
            return UNGRADED
        grade = reply.prediction.grade
        add_step(Step(_GRADE, passage.id, str(grade), usage=reply.usage, seconds=reply.seconds))
        return float(grade)


class ListwiseLMReranker(LMReranker):
    """Lets the LM in use order windows of passages, from the last one up to the first.

    Windows overlap, so that a good passage rises through them. Passages that the LM does not name
    come behind those it names. A window whose reply cannot be read keeps its order. If the
    question has too few LM calls left for all windows, the lowest windows keep theirs.
    """

    def __init__(self, window: int = 10, step: int = 5, **options: Any) -> None:
        super().__init__(OrderPassages, **options)
        self._window, self._step = window, step

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The first `k` passages of the order; scores are 1 / place."""
        ranked = list(passages)
        starts = windows(len(ranked), self._window, self._step)
        affordable = calls_left(default=len(starts))
        unaffordable = len(starts) - affordable
        if unaffordable > 0:
            dropped = tuple(f"window from {start + 1} (no LM calls left for it)" for start in starts[:unaffordable])
            add_step(Step(_ORDER, f"{affordable} of {len(starts)} windows", dropped=dropped))
        for start in starts[max(0, unaffordable) :]:
            end = start + self._window
            ranked[start:end] = self._ordered(query, ranked[start:end])
        return [replace(p, score=1 / place) for place, p in enumerate(ranked[:k], 1)]

    def _ordered(self, query: str, passages: list[Passage]) -> list[Passage]:
        if len(passages) < 2:
            return passages
        try:
            reply = ask(_ORDER, self._predict, retries=self._retries, passages=self._shown(passages), question=query)
        except StepFailed as failure:
            record_fallback(failure, f"{len(passages)} passages left in their order")
            return passages
        named = [n for n in dict.fromkeys(reply.prediction.order.root) if n <= len(passages)]
        order = [*named, *(n for n in range(1, len(passages) + 1) if n not in named)]
        ordered = [passages[n - 1] for n in order]
        ids = tuple(p.id for p in ordered)
        add_step(Step(_ORDER, query, f"{len(named)} named", passage_ids=ids, usage=reply.usage, seconds=reply.seconds))
        return ordered
