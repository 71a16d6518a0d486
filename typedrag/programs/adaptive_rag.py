"""The baseline that retrieves not at all, once, or again and again (Jeong et al. 2024; HANRAG, section 5)."""

from __future__ import annotations

from typing import ClassVar

import dspy

from typedrag.lms.asking import ask
from typedrag.lms.trail import record
from typedrag.programs.ircot import InterleavedReasoning
from typedrag.programs.program import RETRIEVING, program
from typedrag.programs.routed import RoutedProgram
from typedrag.programs.typed_rag.strategies.evidence_based import EvidenceBased
from typedrag.question_types import Route
from typedrag.records import Step
from typedrag.retrieval import Retriever
from typedrag.signatures import JudgeComplexity


@program
class AdaptiveRAG(RoutedProgram):
    """question ─► how complex? ─┬─ straightforward ─► the LM alone
    ├─ single-step ─► retrieve ─► answer
    └─ complex ─► IRCoT
    """

    name: ClassVar[str] = "adaptive_rag"
    reads = RETRIEVING | {"rerank_everywhere", "ircot"}

    def build(self, retriever: Retriever) -> None:
        """The judge of complexity, and a strategy for each route that retrieves."""
        self.complexity = dspy.Predict(JudgeComplexity)
        self.single_step = EvidenceBased(retriever, self.reranker, self.options)
        self.complex = InterleavedReasoning(retriever, self.reranker, self.options)

    def route(self, question: str) -> Route:
        """The route that an LM names; see `RoutedProgram.route`."""
        reply = ask("classify", self.complexity, retries=self.options.retries, question=question)
        route = Route(reply.prediction.route)
        record(Step("classify", question, str(route), seconds=reply.seconds, usage=reply.usage))
        return route

    def by_route(self, question: str, route: Route) -> dspy.Prediction:
        """See `RoutedProgram.by_route`."""
        if route is Route.STRAIGHTFORWARD:
            return self.answer_from_lm(question)
        strategy = self.complex if route is Route.COMPLEX else self.single_step
        return strategy(question=question)
