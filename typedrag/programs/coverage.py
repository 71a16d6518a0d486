"""Core sub-questions in RAG: four ways to use them, and rounds that search for what an answer leaves open
(sub-question coverage, sections 3.1, 5 and 6)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Passage, Step, SubQuestion
from typedrag.lms.trace import add_step, calls_left, collect_steps, record_fallback, reserve_calls, run_concurrently
from typedrag.programs.answering import NotAnswered, PassageAnswerer, Retrieving, is_final
from typedrag.programs.options import Options, SubQueryOptions
from typedrag.programs.program import RETRIEVING, StrategyProgram, program
from typedrag.programs.sub_queries import copyable_prompt, is_copied
from typedrag.programs.typed_rag.strategies import DecomposingStrategy, Decomposition, EvidenceBased
from typedrag.retrieval import Retriever, reciprocal_rank_fusion
from typedrag.signatures import AnswerFromPassages
from typedrag.signatures.answering import AnswerSubQuery
from typedrag.signatures.sub_question_coverage import (
    CORE_DEFINITION,
    AnswerByDefinition,
    AnswerCoveringSubQuestions,
    CombineSubAnswers,
    ReviseAnswer,
)
from typedrag.sub_questions.coverage_judge import PlainCoverageJudge, SentenceCoverageJudge
from typedrag.sub_questions.decomposition import SubQuestionDecomposer, SubQuestionTyper
from typedrag.text.words import first_words


class CoreSubQuestions(dspy.Module):
    """sub-questions, about 20 ─► typed ─► those that are core"""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        plain = options.answer_prompt == "plain"
        self.decomposer = SubQuestionDecomposer(options.retries, plain=plain)
        self.typer = SubQuestionTyper(options.retries, options.types_per_call, plain=plain)

    def forward(self, question: str) -> dspy.Prediction:
        """A prediction with the core `sub_questions`, at most `max_core_sub_questions`, in the LM's order."""
        core = [q.text for q in self.typed(question) if q.type is SubQuestionType.CORE]
        if not core:
            raise StepFailed("decompose", "no sub-question is core")
        return dspy.Prediction(sub_questions=core[: self.options.max_core_sub_questions])

    def weighted(self, question: str) -> dict[str, float]:
        """The sub-questions of types with a weight, each with its share; those a text covers sum to its rating."""
        by_type: dict[SubQuestionType, list[str]] = {}
        for sub_question in self.typed(question):
            by_type.setdefault(sub_question.type, []).append(sub_question.text)
        weights = self.options.coverage_weights.by_type()
        if not any(weights[type_] > 0 for type_ in by_type):
            worth = " or ".join(type_.value for type_, weight in weights.items() if weight > 0)
            raise StepFailed("decompose", f"no sub-question is {worth or 'worth covering'}")
        most = self.options.max_core_sub_questions
        return {
            text: weights[type_] / len(texts[:most])
            for type_, texts in by_type.items()
            if weights[type_]
            for text in texts[:most]
        }

    def typed(self, question: str) -> list[SubQuestion]:
        prompt = copyable_prompt(self.decomposer.decompose, question)
        written = self.decomposer(question=question).sub_questions
        if self.options.answer_prompt == "cited":
            written = [q for q in written if not is_copied(q, prompt)]
        if not written:
            raise StepFailed("decompose", "no usable sub-question came out")
        types = self.typer(question=question, sub_questions=written).types
        return [SubQuestion(text, type_) for text, type_ in zip(written, types, strict=True)]


_CALLS_A_ROUND = 2  # LM calls of a round: one to revise the draft, one to judge the revision


class CoverageRounds(Retrieving):
    """draft ─► core sub-questions it leaves open ─► retrieve for those ─► revise, `coverage_rounds` times at most

    A revision is rejected if its rating is no higher, or it loses a sub-question that was covered. The rounds end
    then, and when nothing is open, no new passage is found, or no LM calls are left. A step that fails
    leaves the answer as it was. By default core sub-questions count alone; with `coverage_weights` an open one of
    another type is searched for if its weight is above 0, and speaks against a revision that covers it if below.
    """

    def build(self) -> None:
        self.core = CoreSubQuestions(self.options)
        self.judge = SentenceCoverageJudge(self.options.retries)
        self.revise = PassageAnswerer(ReviseAnswer, self.options)

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
                revised = self._revise(question, answer, left)
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

    def _revise(self, question: str, draft: dspy.Prediction, left: Sequence[str]) -> dspy.Prediction | None:
        """The revised answer; None if there are no new passages for open sub-questions, or they hold no answer."""
        known = {passage.id for passage in draft.passages}
        with reserve_calls(_CALLS_A_ROUND - 1):  # reranking leaves the other
            pool = reciprocal_rank_fusion(self.search_each(left))
        passages = [passage for passage in pool if passage.id not in known][: self.options.answer_passages]
        if not passages:
            return None
        try:
            new = self.revise(question=question, passages=passages, draft=draft.answer, open_sub_questions=list(left))
        except NotAnswered:
            return None
        revision = {
            "answer": new.answer,
            "passages": tuple({p.id: p for p in (*draft.passages, *new.passages)}.values()),
            "citations": tuple(dict.fromkeys((*draft.citations, *new.citations))),
        }
        return dspy.Prediction(**{**draft.toDict(), **revision})


class _ByDefinition(EvidenceBased):
    """retrieve(question) ─► answer, told what core sub-questions are

    As in the paper the definition is also searched for, with the option `answer_prompt: plain`.
    """

    answers_by = AnswerByDefinition
    may_be_phrase = False

    def query(self, question: str) -> str:
        return f"{question} {CORE_DEFINITION}" if self.options.answer_prompt == "plain" else question


class _BySubQuestions(Retrieving):
    """core sub-questions ─► retrieve(question and all of them, as one query) ─► answer, told to cover them"""

    answers_by = AnswerCoveringSubQuestions

    def build(self) -> None:
        self.core = CoreSubQuestions(self.options)

    def forward(self, question: str) -> dspy.Prediction:
        core = self.core(question=question).sub_questions
        query = " ".join([question, *core])
        [passages] = self.search([query], rerank=True)
        passages = self.rerank(query, passages, self.options.top_k)
        return self.final_answer(self.answer, question, passages, core_sub_questions=core)


class _Core(DecomposingStrategy):
    sub_answer_signature = AnswerSubQuery
    combine_signature = CombineSubAnswers
    pooled_signature = AnswerFromPassages

    def build_decomposer(self, signature: Any) -> dspy.Module:
        return CoreSubQuestions(self.options)

    def decompose(self, question: str) -> tuple[Decomposition, list[str]]:
        core = self.decomposer(question=question).sub_questions
        return Decomposition(core), core


class _Retrieval(_Core):
    """core sub-questions ─► retrieve for the question and each of them ─► pool, ranked by what they cover ─► answer

    By default the whole pool is ranked for each core sub-question, and the ranks are fused: a passage
    that is good for many of them comes first, and no LM is asked. Without a reranker, the ranks are the
    retriever's. With the option `coverage_rerank: judge` the LM then judges which core sub-questions each
    of the best passages answers; if the LM calls of the question do not suffice, the last passages stay
    unjudged. With `coverage_weights`, background and follow-up sub-questions count too: what is found for those whose
    weight is below 0 is not added, and comes last.
    """

    strategy_options = SubQueryOptions(combine="pool", search="sub-query")

    def build(self) -> None:
        super().build()
        if self.options.coverage_rerank == "judge":
            judge = PlainCoverageJudge if self.options.answer_prompt == "plain" else SentenceCoverageJudge
            self.judge = judge(self.options.retries)

    def decompose(self, question: str) -> tuple[Decomposition, list[str]]:
        weights = self.decomposer.weighted(question)
        return Decomposition(list(weights), weights=weights), list(weights)

    def pooled(self, question: str, parts: Decomposition, sub_queries: Sequence[str]) -> list[Passage]:
        weights = parts.weights
        own_ranking, *rankings = self.search([question, *weights], rerank=True)
        sought = [ranking for ranking, weight in zip(rankings, weights.values(), strict=True) if weight > 0]
        pool = reciprocal_rank_fusion([own_ranking, *sought])
        if self.chooses:
            rankings = [self.rerank(s, pool, len(pool)) for s in weights]
        ids = {p.id for p in pool}
        # passages that only the question found count nothing
        ranked = reciprocal_rank_fusion([*rankings, pool], weights=[*weights.values(), 0.0])
        pool = [p for p in ranked if p.id in ids]
        if self.options.coverage_rerank == "judge":
            pool = self._rank_by_coverage(pool, weights)
        best = pool[: self.options.answer_passages]
        add_step(Step("pool", f"{len(pool)} passages", passage_ids=tuple(p.id for p in best)))
        return best

    def _rank_by_coverage(self, pool: list[Passage], weights: Mapping[str, float]) -> list[Passage]:
        """The pool by the weights of the sub-questions that the LM says a passage answers; unjudged passages come
        last."""

        def rate(passage: Passage) -> float:
            text = first_words(passage.text, self.options.passage_words)  # the answer is written from these words only
            try:
                verdicts = self.judge(text=text, sub_questions=list(weights)).verdicts
            except StepFailed as failure:
                record_fallback(failure, "the passage is taken to cover nothing")
                return 0.0
            return sum(weight for verdict, weight in zip(verdicts, weights.values(), strict=True) if verdict.answered)

        candidates = pool[: self.options.rerank_candidates]
        with reserve_calls(1), collect_steps() as steps:  # for the answer
            each = -(-len(weights) // self.judge.sub_questions_per_call)
            judged = candidates[: calls_left(default=each * len(candidates)) // each]
            ratings = run_concurrently(rate, judged, self.options.threads)
        left = candidates[len(judged) :]
        dropped = tuple(f"{p.id} (no LM calls left to judge it)" for p in left)
        hint = f"a higher max_lm_calls would judge {len(left)} more" if left else ""
        add_step(Step("judgments", f"{len(judged)} passages", hint, dropped=dropped, steps=tuple(steps)))
        best_first = sorted(zip(ratings, judged, strict=True), key=lambda pair: -pair[0])
        return [passage for _, passage in best_first] + pool[len(judged) :]


class _EndToEnd(_Core):
    """core sub-questions ─► for each, at once: retrieve ─► answer ─► combine"""

    strategy_options = SubQueryOptions(combine="aggregate", search="sub-query")


class _CoverageProgram(StrategyProgram):
    """A program that answers in one of these ways, or by plain RAG if it gets no core sub-questions."""

    reads = (RETRIEVING - {"answer_length"}) | {"max_core_sub_questions", "types_per_call"}

    def build(self, retriever: Retriever) -> None:
        super().build(retriever)
        self.plain = EvidenceBased(retriever, self.reranker, self.options)

    def respond(self, question: str) -> dspy.Prediction:
        try:
            return super().respond(question)
        except StepFailed as failure:
            if is_final(failure):
                raise
            record_fallback(failure, "answered without core sub-questions")
            return self.plain(question=question)


@program
class CoverageDefinition(_CoverageProgram):
    """question ─► retrieve ─► answer, told what core sub-questions are   (query augmentation)"""

    name: ClassVar[str] = "coverage_definition"
    reads = (RETRIEVING - {"answer_length"}) | {"rerank_everywhere"}
    strategy_class = _ByDefinition


@program
class CoverageSubQuestions(_CoverageProgram):
    """question and core sub-questions ─► retrieve ─► answer, told to cover them  (query augmentation)"""

    name: ClassVar[str] = "coverage_sub_questions"
    strategy_class = _BySubQuestions


@program
class CoverageRetrieval(_CoverageProgram):
    """core sub-questions ─► retrieve for each ─► pool, ranked by what it covers ─► answer  (retrieval augmentation)"""

    name: ClassVar[str] = "coverage_retrieval"
    reads = _CoverageProgram.reads | {"coverage_rerank", "coverage_weights", "threads"}
    strategy_class = _Retrieval


@program
class CoverageEndToEnd(_CoverageProgram):
    """core sub-questions ─► for each: retrieve ─► answer ─► combine   (end-to-end augmentation)"""

    name: ClassVar[str] = "coverage_end_to_end"
    reads = _CoverageProgram.reads | {"rerank_everywhere", "threads"}
    strategy_class = _EndToEnd
