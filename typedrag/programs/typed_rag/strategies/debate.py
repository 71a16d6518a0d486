"""Debate questions have sides that disagree, each searched for by its own query (Typed-RAG, section 3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from typedrag.core.question_types import QuestionType
from typedrag.core.records import Passage, Step, SubAnswer
from typedrag.lms.trace import add_step
from typedrag.programs.sub_queries import Part
from typedrag.programs.typed_rag.strategies.decomposing import DecomposingStrategy, Decomposition
from typedrag.retrieval import round_robin
from typedrag.signatures.answering import AnswerDebate, AnswerFromPerspective
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.fields import PerspectiveAnswer
from typedrag.signatures.typed_rag import FrameDebate, FrameSides, MediatePerspectives


class Debate(DecomposingStrategy):
    """topic, perspectives, one biased sub-query each ─► retrieve ─► answers mediated, or passages pooled"""

    question_type = QuestionType.DEBATE
    decompose_signature = FrameDebate
    sub_answer_signature = AnswerFromPerspective
    combine_signature = MediatePerspectives
    combine_step = "mediate"
    pooled_signature = AnswerDebate
    least_sub_queries = 2

    def build_decomposer(self) -> dspy.Module:
        """The module that writes the sides; with the option `debate_gate` it may find that there are none."""
        return predictor(FrameDebate if self.options.debate_gate else FrameSides)

    def read_parts(self, prediction: dspy.Prediction) -> Decomposition:
        """The topic, and the sub-query and perspective of each side."""
        if not prediction.get("is_debate", True):
            return Decomposition([], why_none="people do not disagree on the question")
        sides = prediction.sides.root
        return Decomposition(
            sub_queries=[s.sub_query for s in sides],
            topic=prediction.topic,
            # reversed, so that the first of several sides with the same sub-query is kept
            perspectives={" ".join(s.sub_query.split()): s.perspective for s in reversed(sides)},
        )

    def told_of(self, silent: Sequence[Part]) -> str:
        """A sentence that names the sides without passages, so that the answer is not taken for a balanced one."""
        sides = ", ".join(part.perspective for part in silent)
        return f"The collection holds no case for: {sides}." if sides else ""

    def pooled(self, question: str, parts: Decomposition, sub_queries: Sequence[str]) -> list[Passage]:
        """The passages to answer from, in turns: the best of each side and of the question, then their second ones.

        Ranked together for the question, most would be of the side that has most to say.
        """
        neutral, *sides = self.search_each([question, *(self._query(question, s) for s in sub_queries)])
        pool = round_robin([*sides, neutral])
        best = pool[: self.options.answer_passages]
        add_step(Step("pool", f"{len(pool)} passages", passage_ids=tuple(p.id for p in best)))
        return best

    def to_combine(self, parts: Decomposition, answers: Sequence[SubAnswer]) -> dict[str, Any]:
        """The topic, and the answer of each side."""
        sides = [PerspectiveAnswer(perspective=a.perspective, answer=a.answer) for a in answers]
        return {"topic": parts.topic, "perspectives": sides}
