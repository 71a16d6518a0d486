"""ANRAG: retrieval in one step that noise does not reach (HANRAG, section 4.1, algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dspy

from typedrag.errors import StepFailed
from typedrag.programs.answer_length import of_length
from typedrag.programs.answering import PassageAnswerer, answer_without_passages
from typedrag.programs.options import Options
from typedrag.programs.revelator import RevelatorModule
from typedrag.programs.strategies.strategy import Strategy
from typedrag.question_types import RevelatorRole
from typedrag.records import Passage, Step, SubAnswer
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures import AnswerFromPassages, AnswerSubQuery, AnswerWithoutPassages
from typedrag.signatures.fields import number_passages
from typedrag.trail import Stopwatch, fall_back, record, recording, run_concurrently


@dataclass(frozen=True)
class Part:
    """What came of one part of a question.

    Attributes:
        query: It was asked by.
        answer: None if it failed.
        passages: It was answered from.
        failure: Why there is no answer; None if there is one.
        steps: That were gone.
    """

    query: str
    answer: SubAnswer | None
    passages: tuple[Passage, ...] = ()
    failure: StepFailed | None = None
    steps: tuple[Step, ...] = ()

    @property
    def outcome(self) -> str:
        """The answer, or why there is none."""
        return self.answer.answer if self.answer else str(self.failure)


class ANRAG(Strategy):
    """retrieve ten ─► judge the relevance of each, at once ─► answer from those that are relevant

    Where none is, the LM answers without, as it does with an empty list in the paper's algorithm.
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, _retrieving_candidates(options))
        self.relevance = RevelatorModule(RevelatorRole.RELEVANCE, options)
        self.answer = PassageAnswerer(of_length(AnswerFromPassages, options), self.options)
        self.answer_part = PassageAnswerer(of_length(AnswerSubQuery, options), self.options)
        self.answer_without_passages = dspy.Predict(of_length(AnswerWithoutPassages, options))

    @property
    def lm_calls(self) -> int:
        """What one query takes, retries aside."""
        return 1 + self.options.hanrag.candidates * self.options.hanrag.discriminate_relevance

    def forward(self, question: str) -> dspy.Prediction:
        """Answer a question; see `Strategy.forward`."""
        [found] = self.search([question], rerank=True)
        if relevant := self.relevant(question, found):
            return self.final_answer(self.answer, question, relevant)
        try:
            return self._without_passages(question, len(found))
        except StepFailed as failure:
            if not found:
                raise
            return self.best_passage(found, failure)

    def answer_parts(self, queries: Sequence[str]) -> list[Part]:
        """Answer parts of a question: retrieve for all in one batch, then answer all at once.

        This is one cycle of retrieval and generation, however many parts there are.
        """
        rankings = self.search(queries, rerank=True)
        parts = run_concurrently(
            lambda pair: self._part(*pair), list(zip(queries, rankings, strict=True)), self.options.threads
        )
        ways = tuple(Step("sub-query", p.query, p.outcome, steps=p.steps) for p in parts)
        record(Step("sub-queries", f"{len(parts)} sub-queries", steps=ways))
        return parts

    def relevant(self, query: str, found: Sequence[Passage]) -> list[Passage]:
        """The passages that are judged relevant, in their order; one whose judgment fails is kept."""
        best = self.rerank(query, found, self.options.top_k)
        if not (self.options.hanrag.discriminate_relevance and best):
            return best
        watch = Stopwatch()
        with recording() as steps:
            judged = run_concurrently(lambda passage: self._judge(query, passage), best, self.options.threads)
        kept = [p for p, relevant in zip(best, judged, strict=True) if relevant]
        record(
            Step(
                "relevance",
                query,
                f"{len(kept)} of {len(best)} passages",
                passage_ids=tuple(p.id for p in kept),
                dropped=tuple(f"passage {p.id} (not relevant)" for p in best if p not in kept),
                seconds=watch.seconds,
                steps=tuple(steps),
            )
        )
        return kept

    def _judge(self, query: str, passage: Passage) -> bool:
        [shown] = number_passages([passage], self.options.passage_words)
        try:
            return bool(self.relevance(question=query, passage=shown).relevant)
        except StepFailed as failure:
            fall_back(failure, "the passage is kept")
            return True

    def _part(self, query: str, found: Sequence[Passage]) -> Part:
        with recording() as steps:
            try:
                if relevant := self.relevant(query, found):
                    made = self.answer_part(question=query, passages=relevant)
                else:
                    made = self._without_passages(query, len(found))
            except StepFailed as failure:
                return Part(query, None, failure=failure, steps=tuple(steps))
        answer = SubAnswer(query, made.answer, made.citations)
        return Part(query, answer, made.passages, steps=tuple(steps))

    def _without_passages(self, question: str, found: int) -> dspy.Prediction:
        nothing = StepFailed("relevance", f"none of {found} passages found for '{question}' is relevant")
        predict = self.answer_without_passages
        return answer_without_passages(predict, question, retries=self.options.retries, because=nothing)


def _retrieving_candidates(options: Options) -> Options:
    """As many passages as are judged, none cut off before, and as many to answer from as may be kept."""
    wanted = options.hanrag
    return options.model_copy(
        update={"top_k": wanted.candidates, "answer_passages": wanted.relevant_passages, "score_cutoff": 0.0}
    )
