"""The baseline that retrieves for the question as it is (Typed-RAG, figure 9)."""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.programs.program import RETRIEVING, Program, program
from typedrag.programs.typed_rag.strategies.evidence_based import EvidenceBased
from typedrag.retrieval import Retriever


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
