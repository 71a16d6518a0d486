"""The baseline that retrieves for each sentence of its reasoning (Trivedi et al. 2023; HANRAG, section 5)."""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.programs.program import RETRIEVING, Program, program
from typedrag.programs.typed_rag.strategies.ircot import InterleavedReasoning
from typedrag.retrieval import Retriever


@program
class IRCoT(Program):
    """question ─► (retrieve ─► one sentence of reasoning) again and again ─► answer"""

    name: ClassVar[str] = "ircot"
    reads = (RETRIEVING - {"answer_passages"}) | {"ircot"}

    def build(self, retriever: Retriever) -> None:
        """One strategy for all."""
        self.strategy = InterleavedReasoning(retriever, self.reranker, self.options)

    def respond(self, question: str) -> dspy.Prediction:
        """Answer from the passages found on the way."""
        return self.strategy(question=question)
