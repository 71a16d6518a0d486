"""Typed-RAG: the type of the question decides how it is answered (paper 1, figure 2)."""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.errors import StepFailed
from typedrag.events import Classified, emit
from typedrag.lms.trail import fall_back
from typedrag.programs.answering import NotAnswered, is_final
from typedrag.programs.program import Program, program
from typedrag.programs.typed_rag.strategies import STRATEGIES
from typedrag.programs.typed_rag.strategies.coverage_rounds import CoverageRounds
from typedrag.programs.typed_rag.strategies.decomposing import Undivided
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier
from typedrag.question_types import QuestionType
from typedrag.retrieval import Retriever


@program
class TypedRAG(Program):
    """question ─► classify ─► the strategy of its type

    A question is answered the evidence-based way if it is a factoid, if the option `decompose` leaves out its
    type, if the LM finds that it has one part, or if it is a remark and the option `reply_to_remarks` is off. If a
    strategy fails (no usable decomposition, no readable sub-answer) or finds no passage, the evidence-based one
    answers, and `fallback` says so. With the option `coverage_rounds`, the program searches again for what the
    answer leaves open.
    """

    name: ClassVar[str] = "typed_rag"
    reads = Program.reads - {"preqrag", "hanrag", "ircot", "adaptive", "richrag", "coverage_rerank"}

    def build(self, retriever: Retriever) -> None:
        """The type classifier, and a strategy for each type."""
        self.classifier = build_type_classifier(self.options)
        if self.options.coverage_rounds:
            self.coverage = CoverageRounds(retriever, self.reranker, self.options)
        self.strategies = {
            question_type.value: strategy(retriever, self.reranker, self.options.of(question_type))
            for question_type, strategy in STRATEGIES.items()
        }

    def respond(self, question: str) -> dspy.Prediction:
        """Classify, then answer by type."""
        question_type = self._type_of(question)
        emit(Classified, question_type=str(question_type))
        try:
            prediction = self._by_type(question, question_type)
            if self.options.coverage_rounds and prediction.get("passages"):
                prediction = self.coverage.improve(question, prediction)
        except NotAnswered as failure:
            prediction = self.not_answered(question, failure)
        return dspy.Prediction(**{**prediction.toDict(), "question_type": question_type})

    def _type_of(self, question: str) -> QuestionType:
        try:
            return QuestionType(self.classifier(question=question).question_type)
        except StepFailed as failure:
            fall_back(failure, f"taken as {QuestionType.EVIDENCE_BASED}")
            return QuestionType.EVIDENCE_BASED

    def _has_own_way(self, question_type: QuestionType) -> bool:
        remark = question_type is QuestionType.NOT_A_QUESTION
        return self.options.reply_to_remarks if remark else self.options.decompose.has(question_type)

    def _by_type(self, question: str, question_type: QuestionType) -> dspy.Prediction:
        plain = self.strategies[QuestionType.EVIDENCE_BASED]
        strategy = self.strategies.get(question_type, plain) if self._has_own_way(question_type) else plain
        if strategy is not plain:
            try:
                return strategy(question=question)
            except Undivided:
                pass
            except StepFailed as failure:
                if is_final(failure):
                    raise
                fall_back(failure, "answered the evidence-based way")
        return plain(question=question)
