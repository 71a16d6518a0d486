"""ANRAG: retrieval in one step, with irrelevant passages left out (HANRAG, section 4.1, algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import dspy

from typedrag.errors import StepFailed
from typedrag.lms.trace import Stopwatch, add_step, collect_steps, record_fallback, run_concurrently
from typedrag.programs.answer_length import of_length
from typedrag.programs.answering import NotAnswered, PassageAnswerer, answer_without_passages
from typedrag.programs.hanrag.revelator import RevelatorModule
from typedrag.programs.options import Options
from typedrag.programs.parts import Part, answer_parts
from typedrag.programs.retrieving import Retrieving
from typedrag.question_types import RevelatorRole
from typedrag.records import Passage, Step
from typedrag.retrieval import Reranker, Retriever
from typedrag.signatures import AnswerFromPassages, AnswerSubQuery, AnswerWithoutPassages
from typedrag.signatures.fields import number_passages


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
        """The passages that are judged relevant, in their order; a passage whose judgment fails is kept.

        Raises:
            NotAnswered: If no passage is relevant.
        """
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
