"""Instruction questions have stages, searched for one by one and kept in order (Typed-RAG, section 3.4)."""

from __future__ import annotations

from collections.abc import Sequence

from typedrag.lms.asking import Reply
from typedrag.programs.typed_rag.strategies.decomposing import DecomposingStrategy, Decomposition
from typedrag.question_types import QuestionType
from typedrag.records import SubAnswer
from typedrag.signatures import AnswerInstruction, AnswerSubQuery, ArrangeSteps, DecomposeInstruction
from typedrag.signatures.fields import QuestionAnswer


class Instruction(DecomposingStrategy):
    """sub-queries, one a stage ─► retrieve ─► answers put in order, or passages pooled"""

    question_type = QuestionType.INSTRUCTION
    decompose_signature = DecomposeInstruction
    sub_answer_signature = AnswerSubQuery
    combine_signature = ArrangeSteps
    pooled_signature = AnswerInstruction

    def ask_to_combine(self, question: str, parts: Decomposition, answers: Sequence[SubAnswer]) -> Reply:
        """The steps of the task out of the answers to its stages, in their order."""
        pairs = [QuestionAnswer(question=a.sub_query, answer=a.answer) for a in answers]
        return self.ask_combine(question=question, sub_answers=pairs)
