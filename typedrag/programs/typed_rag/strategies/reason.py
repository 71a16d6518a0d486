"""Reason questions have several causes, searched for one by one (Typed-RAG, section 3.4)."""

from __future__ import annotations

from typedrag.core.question_types import QuestionType
from typedrag.programs.typed_rag.strategies.decomposing import DecomposingStrategy
from typedrag.signatures.answering import AnswerReason, AnswerSubQuery
from typedrag.signatures.typed_rag import AggregateReasons, DecomposeReason, ParaphraseReason


class Reason(DecomposingStrategy):
    """sub-queries, one a cause ─► retrieve ─► answers aggregated, or passages pooled"""

    question_type = QuestionType.REASON
    decompose_signature = DecomposeReason
    paraphrase_signature = ParaphraseReason
    sub_answer_signature = AnswerSubQuery
    combine_signature = AggregateReasons
    pooled_signature = AnswerReason
