"""Reason questions have several causes, searched for one by one (Typed-RAG, section 3.4)."""

from __future__ import annotations

from collections.abc import Sequence

from typedrag.lms.asking import Reply
from typedrag.programs.typed_rag.strategies.decomposing import DecomposingStrategy, Decomposition
from typedrag.question_types import QuestionType
from typedrag.records import SubAnswer
from typedrag.signatures import AggregateReasons, AnswerReason, AnswerSubQuery, DecomposeReason
from typedrag.signatures.fields import QuestionAnswer


class Reason(DecomposingStrategy):
    """sub-queries, one a cause ─► retrieve ─► answers aggregated, or passages pooled"""

    question_type = QuestionType.REASON
    decompose_signature = DecomposeReason
    sub_answer_signature = AnswerSubQuery
    combine_signature = AggregateReasons
    pooled_signature = AnswerReason

    def ask_to_combine(self, question: str, parts: Decomposition, answers: Sequence[SubAnswer]) -> Reply:
        """One explanation out of the answers to its parts."""
        pairs = [QuestionAnswer(question=a.sub_query, answer=a.answer) for a in answers]
        return self.ask_combine(question=question, sub_answers=pairs)
