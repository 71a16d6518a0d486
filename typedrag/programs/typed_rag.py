"""Typed-RAG: the type of the question decides how it is answered (paper 1, figure 2)."""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.errors import StepFailed
from typedrag.programs.answering import NothingFound
from typedrag.programs.program import Program, program
from typedrag.programs.strategies import STRATEGIES
from typedrag.programs.strategies.coverage_rounds import CoverageRounds
from typedrag.programs.type_classifiers import build_type_classifier
from typedrag.question_types import QuestionType
from typedrag.retrieval import Retriever


@program
class TypedRAG(Program):
    """question ─► classify ─► the strategy of its type

    A factoid is answered the evidence-based way. A strategy that fails (no usable decomposition, no
    sub-query answered) gives way to the evidence-based one, and `fallback` says so. With the option
    `coverage_rounds`, what the answer leaves open is looked for again.
    """

    name: ClassVar[str] = "typed_rag"

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
        try:
            classified = self.classifier(question=question)
        except StepFailed as failure:
            question_type = QuestionType.EVIDENCE_BASED
            classified = dspy.Prediction(question_type=question_type, fallback=f"{failure}; taken as {question_type}")
        question_type = classified.question_type
        fallbacks = [classified.fallback] if classified.get("fallback") else []
        prediction = self._by_type(question, question_type, fallbacks)
        if self.options.coverage_rounds and prediction.get("passages"):
            prediction = self.coverage.improve(question, prediction)
        if prediction.get("fallback"):
            fallbacks.append(prediction.fallback)
        return dspy.Prediction(
            **{**prediction.toDict(), "question_type": question_type, "fallback": "; ".join(fallbacks)}
        )

    def _by_type(self, question: str, question_type: QuestionType, fallbacks: list[str]) -> dspy.Prediction:
        plain = self.strategies[QuestionType.EVIDENCE_BASED]
        strategy = self.strategies.get(question_type, plain)
        if strategy is not plain:
            try:
                return strategy(question=question)
            except StepFailed as failure:
                fallbacks.append(f"{failure}; answered the evidence-based way")
        try:
            return plain(question=question)
        except NothingFound as failure:
            return self.answer_from_lm(question, fallback=f"{failure}; answered without passages")
