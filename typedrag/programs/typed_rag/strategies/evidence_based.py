"""Evidence-based questions have a single aspect (Typed-RAG, section 3.1)."""

from __future__ import annotations

import dspy

from typedrag.programs.answer_length import of_length
from typedrag.programs.answering import PassageAnswerer
from typedrag.programs.options import Options
from typedrag.programs.typed_rag.strategies.strategy import Strategy
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures import AnswerFromPassages


class EvidenceBased(Strategy):
    """retrieve(question) ─► answer"""

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.answer = PassageAnswerer(of_length(AnswerFromPassages, options), options)

    def forward(self, question: str) -> dspy.Prediction:
        """Answer from the passages found for the question itself; see `Strategy.forward`."""
        reranks = self.options.rerank_everywhere
        [passages] = self.search([question], rerank=reranks)
        if reranks:
            passages = self.rerank(question, passages, self.options.top_k)
        return self.final_answer(self.answer, question, passages)
