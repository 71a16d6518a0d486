"""HANRAG: a revelator routes, decomposes, refines and discriminates (paper 4, section 4.1, figure 2).

Routers are modules that take a `question` and return a `dspy.Prediction` with `route`.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.question_types import RevelatorRole, Route
from typedrag.core.records import Passage, Step
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_role_lm
from typedrag.lms.trace import Stopwatch, add_step, calls_left, collect_steps, record_fallback, run_concurrently
from typedrag.programs.answering import (
    NotAnswered,
    PassageAnswerer,
    Retrieving,
    answer_signature,
    answer_without_passages,
)
from typedrag.programs.options import Options
from typedrag.programs.program import RETRIEVING, RoutedProgram, program
from typedrag.programs.sub_queries import (
    Part,
    answer_parts,
    collect_answers,
    combine_answers,
    combine_parts,
    copyable_prompt,
    filter_sub_queries,
    is_copied,
    question_answers,
    topic_similarity,
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
    def __init__(self, role: RevelatorRole, options: Options) -> None:
        super().__init__()
        self.role = role
        self.predict = predictor(REVELATOR_SIGNATURES[role])
        self._retries = options.retries
        self._spec = options.hanrag.revelator_lm

    @property
    def output(self) -> str:
        ((name, _),) = self.predict.signature.output_fields.items()
        return str(name)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        step, question = _STEPS[self.role], str(inputs["question"])
        with use_role_lm(self._spec):
            reply = ask(step, self.predict, retries=self._retries, **inputs)
        output = reply.prediction[self.output]
        value = getattr(output, "root", output)
        shown = "; ".join(value) if isinstance(value, list) else str(value)
        add_step(Step(step, question, shown, seconds=reply.seconds, usage=reply.usage))
        return reply.prediction


_ASKING = "what|when|where|who|whom|whose|which|why|how"
_ASKS_AGAIN = re.compile(rf"(?:[?;,]\s*(?:and\s+)?|\band\s+)(?:(?:in|at|on|for|from|by|with|of)\s+)?(?:{_ASKING})\b")
_LINKED = re.compile(r"\b(?:of|that|who|whose|which|where|by)\b|[’']s\b")
_LINKS = 2


class Router(dspy.Module):
    """Gives every question the same route, or with `rule` one by its wording, without an LM: the baseline that the
    revelator has to beat.

    A question with a second question word after a comma or an `and` is compound; one whose subject is
    described by another subject, and that by a third, is complex; any other takes a single step.

    Example:
        >>> router = Router()
        >>> str(router(question="When was the tower built, and who designed it?").route)
        'compound'
        >>> str(router(question="Who is the mother of the director of Jaws?").route)
        'complex'
    """

    def __init__(self, route: Route | Literal["rule"] = "rule") -> None:
        super().__init__()
        self._route = route

    def forward(self, question: str) -> dspy.Prediction:
        rest = re.sub(rf"^\W*(?:{_ASKING})\b", "", question.lower())
        if isinstance(self._route, Route):
            route = self._route
        elif _ASKS_AGAIN.search(rest):
            route = Route.COMPOUND
        else:
            route = Route.COMPLEX if len(_LINKED.findall(rest)) >= _LINKS else Route.SINGLE_STEP
        add_step(Step("classify", question, str(route)))
        return dspy.Prediction(route=route)


class ANRAG(Retrieving):
    """retrieve ten ─► judge the relevance of each, at once ─► answer from those that are relevant

    If none is relevant, the collection does not say; with the option `ungrounded` the LM then answers without
    passages, as the paper's algorithm does with an empty list.
    """

    answers_by = AnswerFromPassages
    may_be_phrase = True

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        own = {
            "top_k": options.hanrag.candidates,
            "answer_passages": options.hanrag.relevant_passages,
            "score_cutoff": 0.0,
        }
        super().__init__(retriever, reranker, options.model_copy(update=own))
        self.answer_part = PassageAnswerer(AnswerSubQuery, self.options, may_be_phrase=True)
        self.answer_without_passages = dspy.Predict(
            answer_signature(AnswerWithoutPassages, options, may_be_phrase=True)
        )

    def build(self) -> None:
        self.relevance = RevelatorModule(RevelatorRole.RELEVANCE, self.options)

    @property
    def lm_calls(self) -> int:
        hanrag = self.options.hanrag
        judgments = hanrag.candidates * hanrag.discriminate_relevance
        return self.answer.lm_calls + judgments + self.options.ungrounded

    def forward(self, question: str) -> dspy.Prediction:
        [passages] = self.search([question], rerank=True)
        return self.final_answer(self.answer, question, self.relevant(question, passages))

    def answer_parts(self, queries: Sequence[str]) -> list[Part]:
        """Answer parts of a question: retrieve for all in one batch, then answer all at once. This is one cycle."""

        def answer_part(query: str, passages: Sequence[Passage]) -> dspy.Prediction:
            try:
                return self.answer_part(question=query, passages=self.relevant(query, passages))
            except NotAnswered:
                if not self.options.ungrounded:
                    raise
                return answer_without_passages(self.answer_without_passages, query, retries=self.options.retries)

        pairs = zip(queries, self.search(queries, rerank=True), strict=True)
        return answer_parts({q: partial(answer_part, q, passages) for q, passages in pairs}, self.options.threads)

    def relevant(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        """The passages that are judged relevant, in their order; a passage whose judgment fails is kept."""
        best = self.rerank(query, passages, self.options.top_k)
        if not (self.options.hanrag.discriminate_relevance and best):
            return best

        def judge(passage: Passage) -> bool:
            [shown] = number_passages([passage], self.options.passage_words)
            try:
                return bool(self.relevance(question=query, passage=shown).relevant)
            except StepFailed as failure:
                record_fallback(failure, "the passage is kept")
                return True

        watch = Stopwatch()
        with collect_steps() as steps:
            judged = run_concurrently(judge, best, self.options.threads)
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
        self._near = topic_similarity(retriever, self.reranker)
        route = self.options.hanrag.router
        self.router: dspy.Module = (
            RevelatorModule(RevelatorRole.ROUTER, self.options) if route == "lm" else Router(route)
        )
        self.anrag = ANRAG(retriever, self.reranker, self.options)
        self.decomposer = RevelatorModule(RevelatorRole.DECOMPOSER, self.options)
        self.refiner = RevelatorModule(RevelatorRole.REFINER, self.options)
        self.ending = RevelatorModule(RevelatorRole.ENDING, self.options)
        self.composer = dspy.Predict(answer_signature(ComposeAnswer, self.options, may_be_phrase=True))

    def revelator(self) -> dict[RevelatorRole, RevelatorModule]:
        """The roles of the revelator that ask an LM: all, except a router that follows a rule."""
        modules = (self.router, self.decomposer, self.refiner, self.anrag.relevance, self.ending)
        return {m.role: m for m in modules if isinstance(m, RevelatorModule)}

    @property
    def max_lm_calls(self) -> int:
        return self.options.hanrag.max_lm_calls

    def route(self, question: str) -> Route:
        return Route(self.router(question=question).route)

    def by_route(self, question: str, route: Route) -> dspy.Prediction:
        if route is Route.STRAIGHTFORWARD:
            return self.answer_from_lm(question)
        try:
            if route is Route.COMPOUND:
                parts = self.anrag.answer_parts(self._decompose(question))
                return self._compose(question, parts, otherwise="\n\n".join(p.answer.answer for p in parts if p.answer))
            if route is Route.COMPLEX:
                return self._solve_stepwise(question)
        except NotAnswered:
            raise
        except StepFailed as failure:
            record_fallback(failure, "answered in a single step")
        return self.anrag(question=question)

    def _solve_stepwise(self, question: str) -> dspy.Prediction:
        """Answer step by step, as long as another step is needed, allowed, and affordable in LM calls."""
        hanrag = self.options.hanrag
        parts: list[Part] = []
        while True:
            if parts and (len(parts) == hanrag.max_steps or parts[-1].answer is None):
                break
            if parts or hanrag.end_before_first_step:
                if calls_left(default=hanrag.max_lm_calls) < self.anrag.lm_calls + 3:  # refine, ending, compose
                    add_step(Step("ending", question, "no LM calls left for another step"))
                    break
                try:
                    if hanrag.discriminate_ending and self.ending(question=question, solved=_solved(parts)).ending:
                        break
                except StepFailed as failure:
                    record_fallback(failure, "another step is gone")
            query = self._refine(question, parts)
            if query is None:
                break
            parts += self.anrag.answer_parts([query])
        if not parts:
            return self.answer_from_lm(question)
        answers = [p.answer.answer for p in parts if p.answer]
        return self._compose(question, parts, otherwise=answers[-1] if answers else "")

    def _decompose(self, question: str) -> list[str]:
        """The sub-queries of a compound question: at least two, if they are sifted, and no more than the LM calls left
        allow."""
        written = self.decomposer(question=question).sub_queries.root
        affordable = max(1, (calls_left(default=self.max_lm_calls) - 1) // self.anrag.lm_calls)
        most = min(self.options.max_sub_queries, affordable)
        prompt = copyable_prompt(self.decomposer.predict, question)
        usable, dropped = filter_sub_queries(
            question, written, prompt=prompt, limit=most, near=self._near, check=self.options.sift
        )
        if dropped:
            add_step(Step("decompose", question, dropped=dropped))
        if len(usable) < (min(2, most) if self.options.sift else 1):
            raise StepFailed("decompose", "the question has one part only")
        return usable

    def _refine(self, question: str, parts: Sequence[Part]) -> str | None:
        """The next query; None if it would find the same passages again, unless queries are not sifted."""
        if not self.options.hanrag.refine:
            return question
        queries = [p.query for p in parts]
        try:
            query = " ".join(self.refiner(question=question, solved=_solved(parts)).query.root.split())
        except StepFailed as failure:
            again = question in queries
            record_fallback(failure, "no further step is gone" if again else "the question itself is searched for")
            return None if again else question
        if not self.options.sift:
            return query
        if query in queries:
            reason = "asked before, so nothing new would come"
        elif is_copied(query, copyable_prompt(self.refiner.predict, question)):
            reason = "copied from the prompt"
        else:
            return query
        add_step(Step("refine", question, dropped=(f"{query} ({reason})",)))
        return None if parts else question

    def _compose(self, question: str, parts: Sequence[Part], otherwise: str) -> dspy.Prediction:
        """One answer composed from the answers to the parts; the text `otherwise` if no reply can be parsed."""
        pairs, retries = question_answers(collect_answers(parts)), self.options.retries
        fallback = "the answers to sub-queries are given as they are"
        answer = combine_answers(
            "compose", self.composer, otherwise, fallback, retries=retries, question=question, sub_answers=pairs
        )
        return combine_parts(answer, parts)


def _solved(parts: Sequence[Part]) -> list[QuestionAnswer]:
    return question_answers(p.answer for p in parts if p.answer)
