"""Four ways to use core sub-questions in RAG (sub-question coverage, sections 3.1 and 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Passage, Step, SubQuestion
from typedrag.lms.trace import add_step, calls_left, collect_steps, record_fallback, reserve_calls, run_concurrently
from typedrag.programs.answering import PassageAnswerer, as_asked, is_final
from typedrag.programs.options import Options, SubQueryOptions
from typedrag.programs.program import RETRIEVING, Program, program
from typedrag.programs.retrieving import Retrieving
from typedrag.programs.sub_queries import is_copied, prompt_of
from typedrag.programs.typed_rag.strategies.decomposing import DecomposingStrategy, Decomposition
from typedrag.programs.typed_rag.strategies.evidence_based import EvidenceBased
from typedrag.retrieval import Reranker, Retriever, reciprocal_rank_fusion
from typedrag.signatures.answering import AnswerFromPassages, AnswerSubQuery
from typedrag.signatures.sub_question_coverage import AnswerByDefinition, AnswerCoveringSubQuestions, CombineSubAnswers
from typedrag.sub_questions.coverage_judge import SentenceCoverageJudge
from typedrag.sub_questions.decomposition import SubQuestionDecomposer, SubQuestionTyper
from typedrag.text.words import first_words


class CoreSubQuestions(dspy.Module):
    """sub-questions, about 20 ─► typed ─► those that are core

    Args:
        options: The program's options.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.decomposer = SubQuestionDecomposer(options.retries)
        self.typer = SubQuestionTyper(options.retries, options.types_per_call)

    def forward(self, question: str) -> dspy.Prediction:
        """A prediction with the core `sub_questions`, at most `max_core_sub_questions`, in the LM's order."""
        core = [q.text for q in self.typed(question) if q.type is SubQuestionType.CORE]
        if not core:
            raise StepFailed("decompose", "no sub-question is core")
        return dspy.Prediction(sub_questions=core[: self.options.max_core_sub_questions])

    def weighted(self, question: str) -> dict[str, float]:
        """The sub-questions of the types that have a weight, at most `max_core_sub_questions` of each type.

        Returns:
            Each with its weight: that of its type, shared among those of the type. So the weights of the sub-questions
            that a text covers sum to its rating (section 4).
        """
        of_type: dict[SubQuestionType, list[str]] = {}
        for sub_question in self.typed(question):
            of_type.setdefault(sub_question.type, []).append(sub_question.text)
        weights, most = self.options.coverage_weights, self.options.max_core_sub_questions
        if not any(weights.of(type_) > 0 for type_ in of_type):
            worth = " or ".join(type_.value for type_ in SubQuestionType if weights.of(type_) > 0)
            raise StepFailed("decompose", f"no sub-question is {worth or 'worth covering'}")
        return {
            text: weights.of(type_) / len(texts[:most])
            for type_, texts in of_type.items()
            if weights.of(type_)
            for text in texts[:most]
        }

    def typed(self, question: str) -> list[SubQuestion]:
        """All sub-questions with their types, in the LM's order."""
        prompt = prompt_of(self.decomposer.decompose, question)
        written = [q for q in self.decomposer(question=question).sub_questions if not is_copied(q, prompt)]
        if not written:
            raise StepFailed("decompose", "no usable sub-question came out")
        types = self.typer(question=question, sub_questions=written).types
        return [SubQuestion(text, type_) for text, type_ in zip(written, types, strict=True)]


class _ByDefinition(EvidenceBased):
    """retrieve(question) ─► answer, told what core sub-questions are"""

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.answer = PassageAnswerer(as_asked(AnswerByDefinition, options), options)


class _BySubQuestions(Retrieving):
    """core sub-questions ─► retrieve(question and all of them, as one query) ─► answer, told to cover them"""

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        self.core = CoreSubQuestions(options)
        self.answer = PassageAnswerer(as_asked(AnswerCoveringSubQuestions, options), options)

    def forward(self, question: str) -> dspy.Prediction:
        """Answer the question and its core sub-questions; see `Program.respond`."""
        core = self.core(question=question).sub_questions
        query = " ".join([question, *core])
        [passages] = self.search([query], rerank=True)
        passages = self.rerank(query, passages, self.options.top_k)
        return self.final_answer(self.answer, question, passages, core_sub_questions=core)


class _Core(DecomposingStrategy):
    """A strategy whose sub-queries are the core sub-questions."""

    sub_answer_signature = AnswerSubQuery
    combine_signature = CombineSubAnswers
    pooled_signature = AnswerFromPassages

    def build_decomposer(self) -> dspy.Module:
        """The module that writes sub-questions and types them."""
        return CoreSubQuestions(self.options)

    def parts_of(self, question: str) -> tuple[Decomposition, list[str]]:
        """The core sub-questions, as the sub-queries."""
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

    ways = SubQueryOptions(combine="pool", search="sub-query")

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__(retriever, reranker, options)
        if options.coverage_rerank == "judge":
            self.judge = SentenceCoverageJudge(options.retries)

    def parts_of(self, question: str) -> tuple[Decomposition, list[str]]:
        """The sub-questions that have a weight, as the sub-queries."""
        weights = self.decomposer.weighted(question)
        return Decomposition(list(weights), weights=weights), list(weights)

    def pooled(self, question: str, parts: Decomposition, sub_queries: Sequence[str]) -> list[Passage]:
        """The passages that cover the sub-questions best."""
        weights = parts.weights
        of_question, *rankings = self.search([question, *weights], rerank=True)
        sought = [ranking for ranking, weight in zip(rankings, weights.values(), strict=True) if weight > 0]
        pool = self._by_rank(reciprocal_rank_fusion([of_question, *sought]), rankings, weights)
        if self.options.coverage_rerank == "judge":
            pool = self._by_coverage(pool, weights)
        best = pool[: self.options.answer_passages]
        add_step(Step("pool", f"{len(pool)} passages", passage_ids=tuple(p.id for p in best)))
        return best

    def _by_rank(
        self, pool: list[Passage], rankings: Sequence[list[Passage]], weights: Mapping[str, float]
    ) -> list[Passage]:
        """The pool by fused ranks for the sub-questions; passages that only the question found count nothing."""
        if self.chooses:
            rankings = [self.rerank(s, pool, len(pool)) for s in weights]
        ranked = reciprocal_rank_fusion([*rankings, pool], weights=[*weights.values(), 0.0])
        ids = {p.id for p in pool}
        return [p for p in ranked if p.id in ids]

    def _by_coverage(self, pool: list[Passage], weights: Mapping[str, float]) -> list[Passage]:
        """The pool by the weights of the sub-questions that the LM says a passage answers; unjudged passages come
        last."""
        candidates = pool[: self.options.rerank_candidates]
        with reserve_calls(1), collect_steps() as steps:  # for the answer
            each = -(-len(weights) // self.judge.sub_questions_per_call)
            judged = candidates[: calls_left(default=each * len(candidates)) // each]
            ratings = run_concurrently(lambda passage: self._rating(passage, weights), judged, self.options.threads)
        left = candidates[len(judged) :]
        dropped = tuple(f"{p.id} (no LM calls left to judge it)" for p in left)
        hint = f"a higher max_lm_calls would judge {len(left)} more" if left else ""
        add_step(Step("judgments", f"{len(judged)} passages", hint, dropped=dropped, steps=tuple(steps)))
        best_first = sorted(zip(ratings, judged, strict=True), key=lambda pair: -pair[0])
        return [passage for _, passage in best_first] + pool[len(judged) :]

    def _rating(self, passage: Passage, weights: Mapping[str, float]) -> float:
        """The weights of the sub-questions that a passage answers; 0 if no reply can be parsed."""
        try:
            # the answer is written from these words only
            text = first_words(passage.text, self.options.passage_words)
            verdicts = self.judge(text=text, sub_questions=list(weights)).verdicts
        except StepFailed as failure:
            record_fallback(failure, "the passage is taken to cover nothing")
            return 0.0
        return sum(weight for verdict, weight in zip(verdicts, weights.values(), strict=True) if verdict.answered)


class _EndToEnd(_Core):
    """core sub-questions ─► for each, at once: retrieve ─► answer ─► combine"""

    ways = SubQueryOptions(combine="aggregate", search="sub-query")


class _CoverageProgram(Program):
    """A program that answers in one of these ways, or by plain RAG if it gets no core sub-questions."""

    strategy_class: ClassVar[type[Retrieving]]
    reads = (RETRIEVING - {"answer_prompt"}) | {"rerank_everywhere", "max_core_sub_questions", "types_per_call"}

    def build(self, retriever: Retriever) -> None:
        """The strategy, and plain RAG to fall back on."""
        self.strategy = self.strategy_class(retriever, self.reranker, self.options)
        self.plain = EvidenceBased(retriever, self.reranker, self.options)

    def respond(self, question: str) -> dspy.Prediction:
        """Answer by way of core sub-questions."""
        try:
            return self.strategy(question=question)
        except StepFailed as failure:
            if is_final(failure):
                raise
            record_fallback(failure, "answered without core sub-questions")
            return self.plain(question=question)


@program
class CoverageDefinition(_CoverageProgram):
    """question ─► retrieve ─► answer, told what core sub-questions are   (query augmentation)"""

    name: ClassVar[str] = "coverage_definition"
    reads = (RETRIEVING - {"answer_prompt"}) | {"rerank_everywhere"}
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
    reads = _CoverageProgram.reads | {"answer_prompt", "coverage_rerank", "coverage_weights", "threads"}
    strategy_class = _Retrieval


@program
class CoverageEndToEnd(_CoverageProgram):
    """core sub-questions ─► for each: retrieve ─► answer ─► combine   (end-to-end augmentation)"""

    name: ClassVar[str] = "coverage_end_to_end"
    reads = _CoverageProgram.reads | {"answer_prompt", "threads"}
    strategy_class = _EndToEnd
