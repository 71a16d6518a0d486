"""RAG-Fusion: the question in several wordings, their rankings fused (Rackauckas 2024; a baseline of RichRAG)."""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.errors import StepFailed
from typedrag.lms.asking import ask
from typedrag.lms.trace import record_fallback
from typedrag.programs.answer_length import of_length
from typedrag.programs.answering import PassageAnswerer
from typedrag.programs.options import Options
from typedrag.programs.program import RETRIEVING, Program, program
from typedrag.programs.retrieving import Retrieving
from typedrag.programs.sub_queries import nearness, sift_reply
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures import AnswerFromPassages, VaryQuery, predictor


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
