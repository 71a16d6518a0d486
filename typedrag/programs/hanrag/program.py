"""HANRAG: answers a question by the retrieval that it takes (paper 4, figure 2, algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import dspy

from typedrag.errors import StepFailed
from typedrag.lms.trace import add_step, calls_left, record_fallback
from typedrag.programs.answer_length import of_length
from typedrag.programs.answering import NotAnswered
from typedrag.programs.hanrag.anrag import ANRAG
from typedrag.programs.hanrag.revelator import RevelatorModule
from typedrag.programs.hanrag.routers import build_router
from typedrag.programs.parts import Part, answers_of, combine, combined, pairs_of
from typedrag.programs.program import RETRIEVING, program
from typedrag.programs.routed import RoutedProgram
from typedrag.programs.sub_queries import is_copied, nearness, prompt_of, sift
from typedrag.question_types import RevelatorRole, Route
from typedrag.records import Step
from typedrag.retrieval import Retriever
from typedrag.signatures import ComposeAnswer
from typedrag.signatures.fields import QuestionAnswer


@program
class HANRAG(RoutedProgram):
    """question ─► router ─┬─ straightforward ─► the LM alone
                           ├─ single-step ─► ANRAG
                           ├─ compound ─► decomposer ─► ANRAG for all parts at once ─► compose
                           └─ complex ─► ┌► refiner ─► ANRAG ─► ending? ─┬─ yes ─► compose
                                         └───────────── no ──────────────┘

    A question is answered in a single step if its route cannot be read, it has no parts, or all its parts
    fail. If the collection answers no part, it does not say; the straightforward route needs no collection.
    """

    name: ClassVar[str] = "hanrag"
    reads = (RETRIEVING - {"top_k", "answer_passages", "score_cutoff", "max_lm_calls"}) | {
        "hanrag", "max_sub_queries", "sift", "threads",
    }  # fmt: skip

    def build(self, retriever: Retriever) -> None:
        """The revelator's five roles (ANRAG has the one of relevance) and the composer of answers."""
        self._near = nearness(retriever, self.reranker)
        self.router = build_router(self.options)
        self.anrag = ANRAG(retriever, self.reranker, self.options)
        self.decomposer = RevelatorModule(RevelatorRole.DECOMPOSER, self.options)
        self.refiner = RevelatorModule(RevelatorRole.REFINER, self.options)
        self.ending = RevelatorModule(RevelatorRole.ENDING, self.options)
        self.composer = dspy.Predict(of_length(ComposeAnswer, self.options))

    def revelator(self) -> dict[RevelatorRole, RevelatorModule]:
        """The roles of the revelator that ask an LM: all, except a router that follows a rule."""
        modules = (self.router, self.decomposer, self.refiner, self.anrag.relevance, self.ending)
        return {m.role: m for m in modules if isinstance(m, RevelatorModule)}

    @property
    def max_lm_calls(self) -> int:
        """HANRAG's own limit, since judging each passage takes a call."""
        return self.options.hanrag.max_lm_calls

    def route(self, question: str) -> Route:
        """The route that the router names; see `RoutedProgram.route`."""
        return Route(self.router(question=question).route)

    def by_route(self, question: str, route: Route) -> dspy.Prediction:
        """See `RoutedProgram.by_route`."""
        if route is Route.STRAIGHTFORWARD:
            return self.answer_from_lm(question)
        try:
            if route is Route.COMPOUND:
                return self._compound(question)
            if route is Route.COMPLEX:
                return self._complex(question)
        except NotAnswered:
            raise
        except StepFailed as failure:
            record_fallback(failure, "answered in a single step")
        return self.anrag(question=question)

    def _compound(self, question: str) -> dspy.Prediction:
        queries = self._decompose(question)
        parts = self.anrag.answer_parts(queries)
        return self._compose(question, parts, otherwise="\n\n".join(p.answer.answer for p in parts if p.answer))

    def _complex(self, question: str) -> dspy.Prediction:
        parts: list[Part] = []
        while self._goes_on(question, parts):
            query = self._refine(question, parts)
            if query is None:
                break
            parts += self.anrag.answer_parts([query])
        answers = [p.answer.answer for p in parts if p.answer]
        return self._compose(question, parts, otherwise=answers[-1] if answers else "")

    def _goes_on(self, question: str, parts: Sequence[Part]) -> bool:
        """True if another step is needed, allowed, and affordable in LM calls."""
        hanrag = self.options.hanrag
        if not parts:
            return True
        if len(parts) == hanrag.max_steps or parts[-1].answer is None:
            return False
        if calls_left(default=hanrag.max_lm_calls) < self.anrag.lm_calls + 3:  # refine, ending, compose
            add_step(Step("ending", question, "no LM calls left for another step"))
            return False
        if not hanrag.discriminate_ending:
            return True
        try:
            return not self.ending(question=question, solved=_solved(parts)).ending
        except StepFailed as failure:
            record_fallback(failure, "another step is gone")
            return True

    def _decompose(self, question: str) -> list[str]:
        """The sub-queries of a compound question: at least two, and no more than the LM calls left allow."""
        written = self.decomposer(question=question).sub_queries.root
        affordable = max(1, (calls_left(default=self.max_lm_calls) - 1) // self.anrag.lm_calls)
        most = min(self.options.max_sub_queries, affordable)
        prompt = prompt_of(self.decomposer.predict, question)
        sifted = sift(question, written, prompt=prompt, limit=most, near=self._near, by_topic=self.options.sift)
        if sifted.dropped:
            add_step(Step("decompose", question, dropped=sifted.dropped))
        if len(sifted.sub_queries) < min(2, most):
            raise StepFailed("decompose", "the question has one part only")
        return sifted.sub_queries

    def _refine(self, question: str, parts: Sequence[Part]) -> str | None:
        """The next query; None if it would find the same passages again."""
        if not self.options.hanrag.refine:
            return question
        queries = [p.query for p in parts]
        try:
            query = " ".join(self.refiner(question=question, solved=_solved(parts)).query.root.split())
        except StepFailed as failure:
            again = question in queries
            record_fallback(failure, "no further step is gone" if again else "the question itself is searched for")
            return None if again else question
        if reason := self._useless(query, question, queries):
            add_step(Step("refine", question, dropped=(f"{query} ({reason})",)))
            return None if parts else question
        return query

    def _useless(self, query: str, question: str, queries: Sequence[str]) -> str:
        if query in queries:
            return "asked before, so nothing new would come"
        return "copied from the prompt" if is_copied(query, prompt_of(self.refiner.predict, question)) else ""

    def _compose(self, question: str, parts: Sequence[Part], otherwise: str) -> dspy.Prediction:
        """One answer composed from the answers to the parts; the text `otherwise` if no reply can be parsed."""
        pairs, retries = pairs_of(answers_of(parts)), self.options.retries
        fallback = "the answers to sub-queries are given as they are"
        answer = combine(
            "compose", self.composer, otherwise, fallback, retries=retries, question=question, sub_answers=pairs
        )
        return combined(answer, parts)


def _solved(parts: Sequence[Part]) -> list[QuestionAnswer]:
    return pairs_of(p.answer for p in parts if p.answer)
