"""The bases of ways to answer from passages: searching, reranking and the final answer, by a route."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.events import Classified, Searched, emit
from typedrag.core.question_types import Route
from typedrag.core.records import Passage, Step
from typedrag.lms.trace import Stopwatch, add_step, record_fallback, reserve_calls
from typedrag.programs.answering import AnswerFailed, NotAnswered, PassageAnswerer
from typedrag.programs.options import Options
from typedrag.programs.program import Program
from typedrag.retrieval import Reranker, Retriever, reciprocal_rank_fusion


class Retrieving(dspy.Module):
    """Searches, reranks and answers from the passages found.

    Args:
        retriever: Finds passages.
        reranker: Orders them.
        options: The program's options.
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__()
        self.retriever = retriever
        self.reranker = reranker
        self.options = options

    @property
    def chooses(self) -> bool:
        """True if the reranker chooses among the passages found, rather than keeping their order."""
        return getattr(self.reranker, "chooses", True)

    def search(self, queries: Sequence[str], *, rerank: bool, depth: int | None = None) -> list[list[Passage]]:
        """Retrieve for all queries in one batch: `depth` each, by default `top_k`, more if a reranker is to choose."""
        watch = Stopwatch()
        chooses = rerank and self.chooses
        if depth is None:
            depth = max(self.options.top_k, self.options.rerank_candidates) if chooses else self.options.top_k
        emit(Searched, queries=tuple(queries))
        rankings = self.retriever.search(queries, depth)
        if not chooses:
            rankings = [self._cut(ranking) for ranking in rankings]
        query_steps = [Step("query", q, passage_ids=_ids(r)) for q, r in zip(queries, rankings, strict=True)]
        one = query_steps[0] if len(query_steps) == 1 else None
        add_step(
            Step(
                "retrieve",
                one.input if one else f"{len(query_steps)} queries",
                passage_ids=one.passage_ids if one else (),
                seconds=watch.seconds,
                steps=() if one else tuple(query_steps),
            )
        )
        return rankings

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The `k` best passages for a query; a reranker that asks the LM leaves a call for the answer."""
        watch = Stopwatch()
        with reserve_calls(1):
            reranked = self.reranker.rerank(query, passages, k)
        if self.chooses:
            add_step(Step("rerank", query, passage_ids=_ids(reranked), seconds=watch.seconds))
        return reranked

    def search_each(self, queries: Sequence[str]) -> list[list[Passage]]:
        """The `top_k` best passages of each query, reranked for it."""
        rankings = self.search(queries, rerank=True)
        return [self.rerank(q, passages, self.options.top_k) for q, passages in zip(queries, rankings, strict=True)]

    def pool(self, query: str, rankings: Sequence[Sequence[Passage]]) -> list[Passage]:
        """Pool rankings without duplicates and keep the best passages for a query."""
        pooled = reciprocal_rank_fusion(rankings)
        best = self.rerank(query, pooled, self.options.answer_passages)
        add_step(Step("pool", f"{len(pooled)} passages", passage_ids=_ids(best)))
        return best

    def final_answer(
        self, answerer: PassageAnswerer, question: str, passages: Sequence[Passage], **inputs: Any
    ) -> dspy.Prediction:
        """Answer from passages; if no answer can be read, give the best passage that the LM saw as it is."""
        try:
            return answerer(question=question, passages=passages, **inputs)
        except AnswerFailed as failure:
            return self.best_passage(failure.passages, failure)

    def best_passage(self, passages: Sequence[Passage], failure: StepFailed) -> dspy.Prediction:
        """The best passage as the answer, after answering failed."""
        record_fallback(failure, "the best passage found is given as it is")
        best = passages[0]
        shown = tuple(passages[: self.options.answer_passages])
        return dspy.Prediction(answer=best.text, passages=shown, citations=(best.id,))

    def _cut(self, ranking: list[Passage]) -> list[Passage]:
        if not ranking or not self.options.score_cutoff:
            return ranking
        best = ranking[0].score
        lowest = best - (1 - self.options.score_cutoff) * abs(best)  # cosines can be below 0
        return [p for p in ranking if p.score >= lowest]


def _ids(passages: Sequence[Passage]) -> tuple[str, ...]:
    return tuple(p.id for p in passages)


class RoutedProgram(Program):
    """Names a question's route, then answers its way; a question whose route cannot be read is a single step."""

    def route(self, question: str) -> Route:
        """The amount of retrieval that the question takes."""
        raise NotImplementedError

    def by_route(self, question: str, route: Route) -> dspy.Prediction:
        """The answer, found the way of the route; see `Program.respond`."""
        raise NotImplementedError

    def respond(self, question: str) -> dspy.Prediction:
        """Route, then answer the way of the route."""
        try:
            route = self.route(question)
        except StepFailed as failure:
            route = Route.SINGLE_STEP
            record_fallback(failure, f"taken as {route}")
        emit(Classified, route=str(route))
        try:
            answer = self.by_route(question, route)
        except NotAnswered as failure:
            answer = self.not_answered(question, failure)
        return dspy.Prediction(**{**answer.toDict(), "route": str(route)})
