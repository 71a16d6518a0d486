"""HANRAG: a revelator routes, decomposes, refines and discriminates (paper 4, section 4.1, figure 2).

Routers are modules that take a `question` and return a `dspy.Prediction` with `route`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.question_types import RevelatorRole, Route
from typedrag.core.records import Passage, Step
from typedrag.lms.asking import ask
from typedrag.lms.cost import track_calls
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.trace import Stopwatch, add_step, calls_left, collect_steps, record_fallback, run_concurrently
from typedrag.programs.answering import NotAnswered, PassageAnswerer, answer_without_passages, of_length
from typedrag.programs.options import Options
from typedrag.programs.program import RETRIEVING, program
from typedrag.programs.retrieving import Retrieving, RoutedProgram
from typedrag.programs.sub_queries import (
    Part,
    answer_parts,
    answers_of,
    combine,
    combined,
    is_copied,
    nearness,
    pairs_of,
    prompt_of,
    sift,
)
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures.answering import AnswerFromPassages, AnswerSubQuery, AnswerWithoutPassages
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.fields import QuestionAnswer, number_passages
from typedrag.signatures.hanrag import (
    ComposeAnswer,
    DecomposeCompound,
    JudgeEnding,
    JudgeRelevance,
    RefineQuestion,
    RouteQuestion,
)

REVELATOR_SIGNATURES: Mapping[RevelatorRole, type[dspy.Signature]] = {
    RevelatorRole.ROUTER: RouteQuestion,
    RevelatorRole.DECOMPOSER: DecomposeCompound,
    RevelatorRole.REFINER: RefineQuestion,
    RevelatorRole.RELEVANCE: JudgeRelevance,
    RevelatorRole.ENDING: JudgeEnding,
}
"""The signature of each role; each has one output."""

_STEPS = {
    RevelatorRole.ROUTER: "classify",
    RevelatorRole.DECOMPOSER: "decompose",
    RevelatorRole.REFINER: "refine",
    RevelatorRole.RELEVANCE: "relevance",
    RevelatorRole.ENDING: "ending",
}


class RevelatorModule(dspy.Module):
    """One role of the revelator: asks its LM and records the step.

    Args:
        role: The role.
        options: The program's options.
    """

    def __init__(self, role: RevelatorRole, options: Options) -> None:
        super().__init__()
        self.role = role
        self.predict = predictor(REVELATOR_SIGNATURES[role])
        self._retries = options.retries
        self._spec = options.hanrag.revelator_lm

    @property
    def output(self) -> str:
        """The name of its signature's output."""
        ((name, _),) = self.predict.signature.output_fields.items()
        return str(name)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """The prediction of the role's signature."""
        step, question = _STEPS[self.role], str(inputs["question"])
        with self._own_lm():
            reply = ask(step, self.predict, retries=self._retries, **inputs)
        add_step(
            Step(step, question, _in_words(reply.prediction[self.output]), seconds=reply.seconds, usage=reply.usage)
        )
        return reply.prediction

    def _own_lm(self) -> AbstractContextManager[None]:
        return use_lm(_opened(self._spec)) if self._spec else nullcontext()


@cache
def _opened(spec: str) -> dspy.LM:
    return track_calls(open_lm(spec))


def _in_words(output: Any) -> str:
    value = getattr(output, "root", output)
    return "; ".join(value) if isinstance(value, list) else str(value)


_ASKING = "what|when|where|who|whom|whose|which|why|how"
_ASKS_AGAIN = re.compile(rf"(?:[?;,]\s*(?:and\s+)?|\band\s+)(?:(?:in|at|on|for|from|by|with|of)\s+)?(?:{_ASKING})\b")
_LINKED = re.compile(r"\b(?:of|that|who|whose|which|where|by)\b|[’']s\b")
_LINKS = 2


class RuleRouter(dspy.Module):
    """Routes by the wording of a question, without an LM: the baseline that the revelator has to beat.

    A question with a second question word after a comma or an `and` is compound; one whose subject is
    described by another subject, and that by a third, is complex; any other takes a single step.

    Example:
        >>> router = RuleRouter()
        >>> str(router(question="When was the tower built, and who designed it?").route)
        'compound'
        >>> str(router(question="Who is the mother of the director of Jaws?").route)
        'complex'
    """

    def forward(self, question: str) -> dspy.Prediction:
        """The route."""
        rest = re.sub(rf"^\W*(?:{_ASKING})\b", "", question.lower())
        if _ASKS_AGAIN.search(rest):
            route = Route.COMPOUND
        elif len(_LINKED.findall(rest)) >= _LINKS:
            route = Route.COMPLEX
        else:
            route = Route.SINGLE_STEP
        return _routed(question, route)


class FixedRouter(dspy.Module):
    """Gives every question the same route."""

    def __init__(self, route: Route) -> None:
        super().__init__()
        self.route = route

    def forward(self, question: str) -> dspy.Prediction:
        """The route."""
        return _routed(question, self.route)


def build_router(options: Options) -> dspy.Module:
    """The router that the options name."""
    router = options.hanrag.router
    if isinstance(router, Route):
        return FixedRouter(router)
    return RuleRouter() if router == "rule" else RevelatorModule(RevelatorRole.ROUTER, options)


def _routed(question: str, route: Route) -> dspy.Prediction:
    add_step(Step("classify", question, str(route)))
    return dspy.Prediction(route=route)


class ANRAG(Retrieving):
    """retrieve ten ─► judge the relevance of each, at once ─► answer from those that are relevant

    If none is relevant, the collection does not say; with the option `ungrounded` the LM then answers without
    passages, as the paper's algorithm does with an empty list.
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, _retrieving_candidates(options))
        self.relevance = RevelatorModule(RevelatorRole.RELEVANCE, options)
        self.answer = PassageAnswerer(of_length(AnswerFromPassages, options), self.options)
        self.answer_part = PassageAnswerer(of_length(AnswerSubQuery, options), self.options)
        self.answer_without_passages = dspy.Predict(of_length(AnswerWithoutPassages, options))

    @property
    def lm_calls(self) -> int:
        """The LM calls of one query, without retries."""
        hanrag = self.options.hanrag
        judgments = hanrag.candidates * hanrag.discriminate_relevance
        return self.answer.lm_calls + judgments + self.options.ungrounded

    def forward(self, question: str) -> dspy.Prediction:
        """Answer a question; see `Program.respond`."""
        [passages] = self.search([question], rerank=True)
        return self.final_answer(self.answer, question, self.relevant(question, passages))

    def answer_parts(self, queries: Sequence[str]) -> list[Part]:
        """Answer parts of a question: retrieve for all in one batch, then answer all at once.

        This is one cycle of retrieval and generation, however many parts there are.
        """
        rankings = self.search(queries, rerank=True)
        pairs = zip(queries, rankings, strict=True)
        return answer_parts({q: partial(self._part, q, passages) for q, passages in pairs}, self.options.threads)

    def relevant(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """The passages that are judged relevant, in their order; a passage whose judgment fails is kept."""
        best = self.rerank(query, passages, self.options.top_k)
        if not (self.options.hanrag.discriminate_relevance and best):
            return best
        watch = Stopwatch()
        with collect_steps() as steps:
            judged = run_concurrently(lambda passage: self._judge(query, passage), best, self.options.threads)
        relevant = [p for p, is_relevant in zip(best, judged, strict=True) if is_relevant]
        add_step(
            Step(
                "relevance",
                query,
                f"{len(relevant)} of {len(best)} passages",
                passage_ids=tuple(p.id for p in relevant),
                dropped=tuple(f"passage {p.id} (not relevant)" for p in best if p not in relevant),
                seconds=watch.seconds,
                steps=tuple(steps),
            )
        )
        if not relevant:
            raise NotAnswered("relevance", f"none of {len(best)} passages found for '{query}' is relevant")
        return relevant

    def _judge(self, query: str, passage: Passage) -> bool:
        [shown] = number_passages([passage], self.options.passage_words)
        try:
            return bool(self.relevance(question=query, passage=shown).relevant)
        except StepFailed as failure:
            record_fallback(failure, "the passage is kept")
            return True

    def _part(self, query: str, passages: Sequence[Passage]) -> dspy.Prediction:
        try:
            return self.answer_part(question=query, passages=self.relevant(query, passages))
        except NotAnswered:
            if not self.options.ungrounded:
                raise
            return answer_without_passages(self.answer_without_passages, query, retries=self.options.retries)


def _retrieving_candidates(options: Options) -> Options:
    """The options with HANRAG's numbers of candidates and of passages to answer from, and no cutoff by score."""
    hanrag = options.hanrag
    return options.model_copy(
        update={"top_k": hanrag.candidates, "answer_passages": hanrag.relevant_passages, "score_cutoff": 0.0}
    )


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
