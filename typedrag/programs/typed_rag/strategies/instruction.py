"""Instruction questions have stages, searched for one by one and kept in order (Typed-RAG, section 3.4)."""

from __future__ import annotations

from typedrag.core.question_types import QuestionType
from typedrag.programs.typed_rag.strategies.decomposing import DecomposingStrategy
from typedrag.signatures.answering import AnswerInstruction, AnswerSubQuery
from typedrag.signatures.typed_rag import ArrangeSteps, DecomposeInstruction, ParaphraseInstruction


class Instruction(DecomposingStrategy):
    """sub-queries, one a stage ─► retrieve ─► answers put in order, or passages pooled"""

    question_type = QuestionType.INSTRUCTION
    decompose_signature = DecomposeInstruction
    paraphrase_signature = ParaphraseInstruction
    sub_answer_signature = AnswerSubQuery
    combine_signature = ArrangeSteps
    pooled_signature = AnswerInstruction
