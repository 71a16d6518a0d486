"""A reranker that asks the LM about each passage alone: the point-wise baseline of RichRAG (section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import dspy

from typedrag.errors import StepFailed
from typedrag.lms.asking import ask
from typedrag.lms.trail import fall_back, lm_calls_left, record, recording, run_concurrently
from typedrag.records import Passage, Step
from typedrag.signatures import GradePassage
from typedrag.signatures.fields import number_passages

STEP = "grade"
UNGRADED = -1.0
PASSAGE_WORDS = 200
"""That an LM sees of a passage where no program says it."""


class PointwiseLMReranker:
    """Ranks passages by the grades 0 to 3 that the LM in use gives them, one call each.

    Where the question's LM calls do not suffice for all passages, the last ones stay
    ungraded: they come behind the others, as do those whose grade cannot be read, with the score `UNGRADED`.

    Args:
        threads: Passages graded at once.
        passage_words: That the LM gets to see of each; by default as many as that of the program which
            has the reranker, else 200.
        retries: How often a reply that cannot be parsed is asked for again.
    """

    def __init__(self, threads: int = 8, passage_words: int | None = None, retries: int = 1) -> None:
        self._threads = threads
        self._passage_words = passage_words
        self._retries = retries
        self._grade = dspy.Predict(GradePassage)

    def reading(self, passage_words: int) -> PointwiseLMReranker:
        """The same for a program whose LM sees so many words of a passage; see `reader`."""
        return PointwiseLMReranker(self._threads, self._passage_words or passage_words, self._retries)

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
        [shown] = number_passages([passage], self._passage_words or PASSAGE_WORDS)
        try:
            reply = ask(STEP, self._grade, retries=self._retries, passage=shown, question=query)
        except StepFailed as failure:
            fall_back(failure, "the passage stays ungraded")
            return UNGRADED
        grade = reply.prediction.grade
        record(Step(STEP, passage.id, str(grade), usage=reply.usage, seconds=reply.seconds))
        return float(grade)
