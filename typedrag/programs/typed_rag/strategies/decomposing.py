"""The base of reason, instruction and debate: sub-queries, aggregated or pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Passage, Step, SubAnswer
from typedrag.lms.asking import ask
from typedrag.lms.trace import add_step, calls_left, reserve_calls
from typedrag.programs.answering import NotAnswered, PassageAnswerer, as_asked
from typedrag.programs.options import Options, SubQueryOptions
from typedrag.programs.sub_queries import (
    Part,
    answer_parts,
    answers_of,
    citing_what_it_uses,
    combine,
    combined,
    nearness,
    pairs_of,
    sift_reply,
)
from typedrag.programs.typed_rag.strategies.strategy import Strategy
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.typed_rag import AggregateParaphrases


class Undivided(StepFailed):
    """The LM finds that one search is enough: answering the evidence-based way is then not a fallback."""


@dataclass(frozen=True)
class Decomposition:
    """The parts of a question.

    Attributes:
        sub_queries: The sub-queries, in the LM's order.
        topic: The topic of a debate; empty for other questions.
        perspectives: The perspective of each sub-query of a debate.
        weights: What covering each sub-question is worth, if they are weighted; see `CoreSubQuestions.weighted`.
        why_none: Why there are no sub-queries, if the LM has said so.
        undivided: Whether the LM wrote no sub-queries because one search is enough.
    """

    sub_queries: list[str]
    topic: str = ""
    perspectives: dict[str, str] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    why_none: str = ""
    undivided: bool = False


class DecomposingStrategy(Strategy):
    """sub-queries ─► for each, at once: retrieve ─► answer ─► combine   (option `aggregate`)
    sub-queries ─► retrieve for all ─► pool ─► rerank ─► answer once     (option `pool`)

    Subclasses declare the signatures and read their outputs.
    """

    question_type: ClassVar[QuestionType]
    decompose_signature: ClassVar[type[dspy.Signature]]
    sub_answer_signature: ClassVar[type[dspy.Signature]]
    combine_signature: ClassVar[type[dspy.Signature]]
    paraphrase_signature: ClassVar[type[dspy.Signature] | None] = None
    """What writes the sub-queries with the option `sub_queries: paraphrases`; None if it does not hold for the type."""
    combine_step: ClassVar[str] = "aggregate"
    pooled_signature: ClassVar[type[dspy.Signature]]
    least_sub_queries: ClassVar[int] = 1
    """The question is not of this type if fewer sub-queries are usable."""

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.decomposer = self.build_decomposer()
        if self.ways.combine == "pool":
            self.answer_pooled = PassageAnswerer(as_asked(self.pooled_signature, options), options)
        else:
            answering = as_asked(self.sub_answer_signature, options)
            self.speaks_for = "perspective" in answering.input_fields
            self.answer_sub_query = PassageAnswerer(answering, options)
            combining = AggregateParaphrases if self.paraphrases else self.combine_signature
            self.combine = dspy.Predict(as_asked(combining, options))

    @property
    def ways(self) -> SubQueryOptions:
        """The options of this question type."""
        ways: SubQueryOptions = getattr(self.options, self.question_type)
        return ways

    @property
    def paraphrases(self) -> bool:
        """True if the sub-queries are the question in other words."""
        return self.paraphrase_signature is not None and self.options.sub_queries == "paraphrases"

    def build_decomposer(self) -> dspy.Module:
        """The module that writes the sub-queries."""
        paraphrasing = self.paraphrase_signature if self.paraphrases else None
        return predictor(paraphrasing or self.decompose_signature)

    def read_parts(self, prediction: dspy.Prediction) -> Decomposition:
        """The parts that the decomposer predicted."""
        written = prediction.sub_queries
        return Decomposition(sub_queries=written.root, undivided=not written.root and not written.dropped)

    def to_combine(self, parts: Decomposition, answers: Sequence[SubAnswer]) -> dict[str, Any]:
        """The inputs, besides the question, of the LM that combines the answers to sub-queries, in their order."""
        return {"sub_answers": pairs_of(answers)}

    def forward(self, question: str) -> dspy.Prediction:
        """Answer by way of sub-queries; see `Strategy.forward`."""
        parts, sub_queries = self.parts_of(question)
        if self.ways.combine == "pool":
            return self.final_answer(self.answer_pooled, question, self.pooled(question, parts, sub_queries))
        return self._aggregate(question, parts, sub_queries)

    def parts_of(self, question: str) -> tuple[Decomposition, list[str]]:
        """The parts of the question, and the sub-queries that are used."""
        reply = ask("decompose", self.decomposer, retries=self.options.retries, question=question)
        parts = self.read_parts(reply.prediction)
        if parts.undivided:
            verdict = "one search is enough"
            add_step(Step("decompose", question, verdict, seconds=reply.seconds, usage=reply.usage))
            raise Undivided("decompose", verdict)
        near, written = nearness(self.retriever, self.reranker), parts.sub_queries
        sub_queries = sift_reply(reply, question, written, self.decomposer, self.options, about=parts.topic, near=near)
        if len(sub_queries) < min(self.least_sub_queries, self.options.max_sub_queries):
            usable = "no usable sub-query" if not sub_queries else "one usable sub-query only"
            raise StepFailed("decompose", parts.why_none or f"{usable} came out")
        return parts, sub_queries

    def _query(self, question: str, sub_query: str) -> str:
        return f"{question} {sub_query}" if self.ways.search == "joined" else sub_query

    def pooled(self, question: str, parts: Decomposition, sub_queries: Sequence[str]) -> list[Passage]:
        """The passages of the question and all sub-queries to answer from, best first."""
        queries = [question, *(self._query(question, s) for s in sub_queries)]
        return self.pool(question, self.search(queries, rerank=True))

    def _aggregate(self, question: str, parts: Decomposition, sub_queries: list[str]) -> dspy.Prediction:
        each = self.answer_sub_query.lm_calls
        affordable = max(1, (calls_left(default=each * len(sub_queries) + 1) - 1) // each)
        unaffordable = sub_queries[affordable:]
        sub_queries = sub_queries[:affordable]
        rankings = self.search([self._query(question, s) for s in sub_queries], rerank=self.options.rerank_everywhere)
        if self.options.rerank_everywhere:
            with reserve_calls(len(sub_queries)):
                pairs = zip(sub_queries, rankings, strict=True)
                rankings = [self.rerank(s, passages, self.options.top_k) for s, passages in pairs]
        ranked = zip(sub_queries, rankings, strict=True)
        answerers = {s: partial(self._answer_sub_query, s, passages, parts) for s, passages in ranked}
        with reserve_calls(int(calls_left(default=2) > 1)):  # for combining them, even if a sub-answer is retried
            ways = answer_parts(
                answerers,
                self.options.threads,
                perspectives=parts.perspectives,
                dropped=tuple(f"{s} (no LM calls left for it)" for s in unaffordable),
            )
        answers = answers_of(ways)
        one_by_one, shown = "\n\n".join(a.answer for a in answers), self.to_combine(parts, answers)
        retries = self.options.retries
        answer = combine(self.combine_step, self.combine, one_by_one, retries=retries, question=question, **shown)
        silent = self.told_of([way for way in ways if isinstance(way.failure, NotAnswered)])
        return citing_what_it_uses(combined("\n\n".join(filter(None, (answer, silent))), ways), question)

    def told_of(self, silent: Sequence[Part]) -> str:
        """A text for the answer about parts that the collection does not answer; empty by default."""
        return ""

    def _answer_sub_query(self, sub_query: str, passages: list[Passage], parts: Decomposition) -> dspy.Prediction:
        perspective = parts.perspectives.get(sub_query)
        inputs = {"perspective": perspective} if perspective and self.speaks_for else {}
        return self.answer_sub_query(question=sub_query, passages=passages, **inputs)
