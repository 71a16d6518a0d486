"""Rounds that search for what an answer leaves open (sub-question coverage, section 6: coverage as a signal)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.records import Passage, Step
from typedrag.lms.trace import add_step, calls_left, record_fallback, reserve_calls
from typedrag.programs.answering import NotAnswered, PassageAnswerer, as_asked
from typedrag.programs.coverage import CoreSubQuestions
from typedrag.programs.options import Options
from typedrag.programs.retrieving import Retrieving
from typedrag.retrieval import Reranker, Retriever, reciprocal_rank_fusion
from typedrag.signatures.sub_question_coverage import ReviseAnswer
from typedrag.sub_questions.coverage_judge import SentenceCoverageJudge

_CALLS_A_ROUND = 2
"""LM calls of a round: one to revise the draft, one to judge the revision."""


class CoverageRounds(Retrieving):
    """draft ─► core sub-questions it leaves open ─► retrieve for those ─► revise, `coverage_rounds` times at most

    A revision is rejected if its rating is no higher, or it loses a sub-question that was covered. The rounds end
    then, and when nothing is open, no new passage is found, or no LM calls are left. A step that fails
    leaves the answer as it was. By default core sub-questions count alone; with `coverage_weights` an open one of
    another type is searched for if its weight is above 0, and speaks against a revision that covers it if below.
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.core = CoreSubQuestions(options)
        self.judge = SentenceCoverageJudge(options.retries)
        self.revise = PassageAnswerer(as_asked(ReviseAnswer, options), options)

    def improve(self, question: str, draft: dspy.Prediction) -> dspy.Prediction:
        """The answer after all rounds, with the passages and citations of the draft and its revisions."""
        answer = draft
        try:
            weights = self.core.weighted(question)
            worth = [text for text, weight in weights.items() if weight > 0]
            covered = self._covered(answer, weights)
            for _ in range(self.options.coverage_rounds):
                left = [text for text in worth if text not in covered]
                if not left or calls_left(default=_CALLS_A_ROUND) < _CALLS_A_ROUND:
                    break
                revised = self._revised(question, answer, left)
                if revised is None:
                    break
                now = self._covered(revised, weights)
                still = [text for text in worth if text not in now]
                lost = [text for text in still if text in covered]
                if lost or sum(now.values()) <= sum(covered.values()):
                    covers = f"{len(still)} sub-questions open after it, {len(left)} before"
                    if lost:
                        covers += f"; no longer covered: {' '.join(lost)}"
                    add_step(Step("coverage round", question, dropped=(f"{revised.answer} ({covers})",)))
                    break
                answer, covered = revised, now
        except StepFailed as failure:
            record_fallback(failure, "not revised any further")
        return answer

    def _covered(self, answer: dspy.Prediction, weights: Mapping[str, float]) -> dict[str, float]:
        """The sub-questions that an answer covers, with their weights, whose sum is its rating."""
        verdicts = self.judge(text=answer.answer, sub_questions=list(weights)).verdicts
        return {text: weights[text] for text, verdict in zip(weights, verdicts, strict=True) if verdict.answered}

    def _revised(self, question: str, draft: dspy.Prediction, left: Sequence[str]) -> dspy.Prediction | None:
        """The revised answer; None if there are no new passages, or they hold no answer."""
        passages = self._new(left, draft)
        if not passages:
            return None
        try:
            new = self.revise(question=question, passages=passages, draft=draft.answer, open_sub_questions=list(left))
        except NotAnswered:
            return None
        return dspy.Prediction(
            **{
                **draft.toDict(),
                "answer": new.answer,
                "passages": tuple({p.id: p for p in (*draft.passages, *new.passages)}.values()),
                "citations": tuple(dict.fromkeys((*draft.citations, *new.citations))),
            }
        )

    def _new(self, sub_questions: Sequence[str], draft: dspy.Prediction) -> list[Passage]:
        """The passages for open sub-questions that are not among the draft's."""
        known = {passage.id for passage in draft.passages}
        with reserve_calls(_CALLS_A_ROUND - 1):  # reranking leaves the other
            pool = reciprocal_rank_fusion(self.search_each(sub_questions))
        return [passage for passage in pool if passage.id not in known][: self.options.answer_passages]
