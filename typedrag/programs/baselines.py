"""Baselines: the LM alone, RAG, RAG-Fusion, and the dataset's own answers."""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.core.call_context import call_context
from typedrag.core.errors import InputError, StepFailed
from typedrag.lms.asking import ask
from typedrag.lms.trace import record_fallback
from typedrag.programs.answering import PassageAnswerer, of_length
from typedrag.programs.options import Options
from typedrag.programs.program import ASKING, RETRIEVING, Program, program
from typedrag.programs.retrieving import Retrieving
from typedrag.programs.sub_queries import nearness, sift_reply
from typedrag.programs.typed_rag.strategies.evidence_based import EvidenceBased
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures.answering import AnswerFromPassages
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.richrag import VaryQuery


@program
class DirectLM(Program):
    """question ─► answer"""

    name: ClassVar[str] = "direct_lm"
    reads = ASKING
    retrieves: ClassVar[bool] = False

    def respond(self, question: str) -> dspy.Prediction:
        """Answer from the LM's own knowledge."""
        return self.answer_from_lm(question)


@program
class RAG(Program):
    """question ─► retrieve ─► (rerank) ─► answer"""

    name: ClassVar[str] = "rag"
    reads = RETRIEVING | {"rerank_everywhere"}

    def build(self, retriever: Retriever) -> None:
        """The strategy for evidence-based questions, used for all."""
        self.strategy = EvidenceBased(retriever, self.reranker, self.options)

    def respond(self, question: str) -> dspy.Prediction:
        """Answer from the passages found for the question."""
        return self.strategy(question=question)


@program
class RAGFusion(Program):
    """question ─► variants ─► retrieve for each ─► reciprocal rank fusion ─► (rerank) ─► answer"""

    name: ClassVar[str] = "rag_fusion"
    reads = RETRIEVING | {"max_sub_queries", "sift"}

    def build(self, retriever: Retriever) -> None:
        """One strategy for all questions."""
        self.strategy = _Fusion(retriever, self.reranker, self.options)

    def respond(self, question: str) -> dspy.Prediction:
        """Answer from the passages found for the question and its variants."""
        return self.strategy(question=question)


class _Fusion(Retrieving):
    """Searches with variants of the question; with the question alone, as `fallback` says, if none can be read."""

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.vary = predictor(VaryQuery)
        self.answer = PassageAnswerer(of_length(AnswerFromPassages, options), options)

    def forward(self, question: str) -> dspy.Prediction:
        """See `Program.respond`."""
        try:
            variants = self._variants(question)
        except StepFailed as failure:
            variants = []
            record_fallback(failure, "searched with the question alone")
        passages = self.pool(question, self.search([question, *variants], rerank=True))
        return self.final_answer(self.answer, question, passages)

    def _variants(self, question: str) -> list[str]:
        reply = ask("decompose", self.vary, retries=self.options.retries, question=question)
        near = nearness(self.retriever, self.reranker)
        return sift_reply(reply, question, reply.prediction.queries.root, self.vary, self.options, near=near)


@program
class ReferenceAnswer(Program):
    """question ─► the dataset's own answer: the better of two that people compared, or the best reference

    No LM is asked. It answers questions of an evaluation alone.
    """

    name: ClassVar[str] = "reference"
    reads = frozenset({"max_question_chars"})
    retrieves: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = True

    def respond(self, question: str) -> dspy.Prediction:
        """The dataset's answer.

        Raises:
            InputError: If the dataset has none for this question.
        """
        if answers := call_context().labels.get("answers_compared"):
            return dspy.Prediction(answer=answers[0 if call_context().labels["preference"] > 0 else 1])
        if references := call_context().labels.get("references"):
            return dspy.Prediction(answer=references[0].text)
        raise InputError("the question has no answer of its own", "Evaluate 'reference' on a dataset that has answers")
