"""The baseline that retrieves not at all, once, or again and again (Jeong et al. 2024; HANRAG, section 5)."""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.programs.complexity import build_complexity
from typedrag.programs.ircot import InterleavedReasoning
from typedrag.programs.program import RETRIEVING, program
from typedrag.programs.routed import RoutedProgram
from typedrag.programs.typed_rag.strategies.evidence_based import EvidenceBased
from typedrag.question_types import Route
from typedrag.retrieval import Retriever


@program
class AdaptiveRAG(RoutedProgram):
    """question ─► how complex? ─┬─ straightforward ─► the LM alone
    ├─ single-step ─► retrieve ─► answer
    └─ complex ─► IRCoT
    """

    name: ClassVar[str] = "adaptive_rag"
    reads = RETRIEVING | {"rerank_everywhere", "ircot", "adaptive"}

    def build(self, retriever: Retriever) -> None:
        """The classifier of questions, and a strategy for each route that retrieves."""
        self.complexity = build_complexity(self.options)
        self.single_step = EvidenceBased(retriever, self.reranker, self.options)
        self.complex = InterleavedReasoning(retriever, self.reranker, self.options)

    def route(self, question: str) -> Route:
        """The route that the classifier names; see `RoutedProgram.route`."""
        return Route(self.complexity(question=question).route)

    def by_route(self, question: str, route: Route) -> dspy.Prediction:
        """See `RoutedProgram.by_route`."""
        if route is Route.STRAIGHTFORWARD:
            return self.answer_from_lm(question)
        strategy = self.complex if route is Route.COMPLEX else self.single_step
        return strategy(question=question)
