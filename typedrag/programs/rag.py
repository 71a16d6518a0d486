"""The baseline that retrieves for the question as it is (Typed-RAG, figure 9)."""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.programs.answering import NothingFound
from typedrag.programs.options import Options
from typedrag.programs.program import Program, program
from typedrag.programs.strategies.evidence_based import EvidenceBased
from typedrag.retrieval import Reranker, Retriever


@program
class RAG(Program):
    """question ─► retrieve ─► (rerank) ─► answer"""

    name: ClassVar[str] = "rag"

    def __init__(
        self,
        retriever: Retriever | None = None,
        reranker: Reranker | None = None,
        options: Options | None = None,
    ) -> None:
        super().__init__(retriever, reranker, options)
        assert self.retriever is not None
        self.strategy = EvidenceBased(self.retriever, self.reranker, self.options)

    def respond(self, question: str) -> dspy.Prediction:
        """Answer from the passages found for the question."""
        try:
            return self.strategy(question=question)
        except NothingFound as failure:
            return self.answer_from_lm(question, fallback=f"{failure}; answered without passages")
