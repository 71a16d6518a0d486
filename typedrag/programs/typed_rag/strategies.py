"""The strategies of question types, each as the paper's figure draws it (Typed-RAG, sections 3.1 to 3.5, figure 2).

Each returns `answer`, `passages`, `citations` and, if not from passages, `answered`. It raises `NotAnswered` if the
collection does not say, and `StepFailed` if a step fails that it cannot do without.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answered, Passage, Step, SubAnswer
from typedrag.lms.asking import ask
from typedrag.lms.trace import add_step, calls_left, reserve_calls
from typedrag.programs.answering import NotAnswered, PassageAnswerer, Retrieving, answer_signature, prompt_signature
from typedrag.programs.options import SubQueryOptions
from typedrag.programs.sub_queries import (
    Part,
    answer_parts,
    collect_answers,
    combine_answers,
    combine_parts,
    drop_unused_citations,
    filter_reply,
    question_answers,
    topic_similarity,
)
from typedrag.retrieval import reciprocal_rank_fusion, round_robin
from typedrag.signatures import AnswerFromPassages, answering, predictor, typed_rag
from typedrag.signatures.fields import PerspectiveAnswer
from typedrag.text.words import content_words


class EvidenceBased(Retrieving):
    """A question of a single aspect (section 3.1): retrieve(question) ─► answer"""

    answers_by: ClassVar[type[dspy.Signature] | None] = AnswerFromPassages
    may_be_phrase = True

    def query(self, question: str) -> str:
        """The query for a question."""
        return question

    def forward(self, question: str, about_it: bool = False) -> dspy.Prediction:
        """Answer from the passages found for the question itself.

        With `about_it` only passages count that hold three content words of the question, and two thirds of them: small
        talk shares a word or two with some passage of any collection.
        """
        reranks = self.options.rerank_everywhere
        [passages] = self.search([query := self.query(question)], rerank=reranks)
        if reranks:
            passages = self.rerank(query, passages, self.options.top_k)
        if about_it:
            words = {word for word in content_words(question) if len(word) > 2}  # not what an apostrophe parts
            least = max(3, 2 * len(words) / 3)
            passages = [p for p in passages if len(words & content_words(p.titled)) >= least]
        return self.final_answer(self.answer, question, passages)


class Comparison(Retrieving):
    """purpose and items ─► retrieve per item ─► drop duplicates ─► rerank ─► answer to the purpose   (section 3.2)

    With the option `comparison_search` items are joined to the question, which is searched for, too.
    """

    answers_by = answering.AnswerComparison

    def build(self) -> None:
        self.frame = predictor(prompt_signature(typed_rag.FrameComparison, self.options))

    def forward(self, question: str) -> dspy.Prediction:
        reply = ask("decompose", self.frame, retries=self.options.retries, question=question)
        frame = reply.prediction
        items = list(dict.fromkeys(item.strip() for item in frame.items_compared.root if item.strip()))
        parts = f"{frame.purpose}: {'; '.join(items)}"
        add_step(Step("decompose", question, parts, seconds=reply.seconds, usage=reply.usage))
        joined = self.options.comparison_search == "joined"
        if not frame.is_comparison or len(items) < (2 if joined else 1):  # the authors' code asks for one
            raise StepFailed("decompose", "no comparison of two or more items was found in the question")
        queries = [question, *(f"{question} {item}" for item in items)] if joined else items
        passages = self.pool(question, self.search(queries, rerank=True))
        compared = {"purpose": frame.purpose, "items_compared": frame.items_compared}
        return self.final_answer(self.answer, question, passages, **compared)


class Experience(Retrieving):
    """keywords ─► retrieve ─► rerank by the keywords ─► answer   (section 3.3)

    By default all keywords make one query: one such as "best" finds nothing of use by itself.
    """

    answers_by = answering.AnswerExperience

    def build(self) -> None:
        self.extract_keywords = predictor(prompt_signature(typed_rag.ExtractKeywords, self.options))

    def forward(self, question: str) -> dspy.Prediction:
        reply = ask("decompose", self.extract_keywords, retries=self.options.retries, question=question)
        keywords = " ".join(dict.fromkeys(" ".join(reply.prediction.keywords.root).split()))
        add_step(Step("decompose", question, keywords, seconds=reply.seconds, usage=reply.usage))
        if not keywords:
            raise StepFailed("decompose", "no keywords were found in the question")
        queries = {
            "joined": [f"{question} {keywords}"],
            "keywords": [keywords],
            "each": list(dict.fromkeys(reply.prediction.keywords.root)),
            "question": [question],
        }
        rankings = self.search(queries[self.options.experience_search], rerank=True)
        passages = rankings[0] if len(rankings) == 1 else reciprocal_rank_fusion(rankings)
        best = self.rerank(keywords, passages, self.options.top_k)
        return self.final_answer(self.answer, question, best)


class NoDecomposition(StepFailed):
    """The LM finds that one search is enough: answering the evidence-based way is then not a fallback."""


@dataclass(frozen=True)
class Decomposition:
    """The parts of a question."""

    sub_queries: list[str]  # the sub-queries, in the LM's order
    topic: str = ""  # the topic of a debate
    perspectives: dict[str, str] = field(default_factory=dict)  # the perspective of each sub-query of a debate
    weights: dict[str, float] = field(default_factory=dict)
    """The worth of covering each sub-question, if they are weighted; see `CoreSubQuestions.weighted`."""
    why_none: str = ""  # why there are no sub-queries, if the LM has said so


class DecomposingStrategy(Retrieving):
    """sub-queries ─► for each, at once: retrieve ─► answer ─► combine   (option `aggregate`)
    sub-queries ─► retrieve for all ─► pool ─► rerank ─► answer once     (option `pool`)

    Subclasses declare the signatures and read their outputs.
    """

    question_type: ClassVar[QuestionType]
    decompose_signature: ClassVar[type[dspy.Signature] | None] = None
    sub_answer_signature: ClassVar[type[dspy.Signature]]
    combine_signature: ClassVar[type[dspy.Signature]]
    paraphrase_signature: ClassVar[type[dspy.Signature] | None] = None
    """The writer of the sub-queries with the option `sub_queries: paraphrases`; None if it does not hold for the
    type."""
    combine_step: ClassVar[str] = "aggregate"
    pooled_signature: ClassVar[type[dspy.Signature]]
    least_sub_queries: ClassVar[int] = 1  # the question is not of this type if fewer sub-queries are usable

    def build(self) -> None:
        options, paraphrasing = self.options, self.paraphrase_signature
        if paraphrasing and options.sub_queries != "paraphrases":
            paraphrasing = None
        self.decomposer = self.build_decomposer(paraphrasing or self.decompose_signature)
        if self.strategy_options.combine == "pool":
            self.answer_pooled = PassageAnswerer(self.pooled_signature, options)
        else:
            self.speaks_for = "perspective" in prompt_signature(self.sub_answer_signature, options).input_fields
            self.answer_sub_query = PassageAnswerer(self.sub_answer_signature, options)
            combining = typed_rag.AggregateParaphrases if paraphrasing else self.combine_signature
            self.combine = dspy.Predict(answer_signature(combining, options))

    @property
    def strategy_options(self) -> SubQueryOptions:
        options: SubQueryOptions = getattr(self.options, self.question_type)
        return options

    def build_decomposer(self, signature: Any) -> dspy.Module:
        return predictor(signature)

    def read_parts(self, prediction: dspy.Prediction) -> Decomposition:
        written = prediction.sub_queries
        if not written.root and not written.dropped:
            raise NoDecomposition("decompose", "one search is enough")
        return Decomposition(written.root)

    def combiner_inputs(self, parts: Decomposition, answers: Sequence[SubAnswer]) -> dict[str, Any]:
        """The inputs, besides the question, of the LM that combines the answers to sub-queries, in their order."""
        return {"sub_answers": question_answers(answers)}

    def unanswered_note(self, unanswered: Sequence[Part]) -> str:
        """A text for the answer about parts that the collection does not answer; empty by default."""
        return ""

    def decompose(self, question: str) -> tuple[Decomposition, list[str]]:
        """The parts of the question, and the sub-queries that are used."""
        reply = ask("decompose", self.decomposer, retries=self.options.retries, question=question)
        try:
            parts = self.read_parts(reply.prediction)
        except NoDecomposition as verdict:
            add_step(Step("decompose", question, verdict.problem, seconds=reply.seconds, usage=reply.usage))
            raise
        near, written = topic_similarity(self.retriever, self.reranker), parts.sub_queries
        sub_queries = filter_reply(
            reply, question, written, self.decomposer, self.options, about=parts.topic, near=near
        )
        if len(sub_queries) < min(self.least_sub_queries, self.options.max_sub_queries):
            usable = "no usable sub-query" if not sub_queries else "one usable sub-query only"
            raise StepFailed("decompose", parts.why_none or f"{usable} came out")
        return parts, sub_queries

    def search_queries(self, question: str, sub_queries: Sequence[str]) -> list[str]:
        joined = self.strategy_options.search == "joined"
        return [f"{question} {sub_query}" if joined else sub_query for sub_query in sub_queries]

    def pooled(self, question: str, parts: Decomposition, sub_queries: Sequence[str]) -> list[Passage]:
        """The passages of the question and all sub-queries to answer from, best first."""
        queries = [question, *self.search_queries(question, sub_queries)]
        return self.pool(question, self.search(queries, rerank=True))

    def forward(self, question: str) -> dspy.Prediction:
        parts, sub_queries = self.decompose(question)
        if self.strategy_options.combine == "pool":
            return self.final_answer(self.answer_pooled, question, self.pooled(question, parts, sub_queries))
        each = self.answer_sub_query.lm_calls
        affordable = max(1, (calls_left(default=each * len(sub_queries) + 1) - 1) // each)
        sub_queries, unaffordable = sub_queries[:affordable], sub_queries[affordable:]
        reranks = self.options.rerank_everywhere
        rankings = self.search(self.search_queries(question, sub_queries), rerank=reranks)
        if reranks:
            with reserve_calls(len(sub_queries)):
                pairs = zip(sub_queries, rankings, strict=True)
                rankings = [self.rerank(s, passages, self.options.top_k) for s, passages in pairs]

        def answer_sub_query(sub_query: str, passages: list[Passage]) -> dspy.Prediction:
            perspective = parts.perspectives.get(sub_query)
            inputs = {"perspective": perspective} if perspective and self.speaks_for else {}
            return self.answer_sub_query(question=sub_query, passages=passages, **inputs)

        ranked = zip(sub_queries, rankings, strict=True)
        answerers = {s: partial(answer_sub_query, s, passages) for s, passages in ranked}
        with reserve_calls(int(calls_left(default=2) > 1)):  # for combining them, even if a sub-answer is retried
            answered = answer_parts(
                answerers,
                self.options.threads,
                perspectives=parts.perspectives,
                dropped=tuple(f"{s} (no LM calls left for it)" for s in unaffordable),
            )
        answers = collect_answers(answered)
        one_by_one, inputs = "\n\n".join(a.answer for a in answers), self.combiner_inputs(parts, answers)
        retries = self.options.retries
        answer = combine_answers(
            self.combine_step, self.combine, one_by_one, retries=retries, question=question, **inputs
        )
        note = self.unanswered_note([part for part in answered if isinstance(part.failure, NotAnswered)])
        return drop_unused_citations(combine_parts("\n\n".join(filter(None, (answer, note))), answered), question)


class Reason(DecomposingStrategy):
    """sub-queries, one a cause ─► retrieve ─► answers aggregated, or passages pooled   (section 3.4)"""

    question_type = QuestionType.REASON
    decompose_signature = typed_rag.DecomposeReason
    paraphrase_signature = typed_rag.ParaphraseReason
    sub_answer_signature = answering.AnswerSubQuery
    combine_signature = typed_rag.AggregateReasons
    pooled_signature = answering.AnswerReason


class Instruction(DecomposingStrategy):
    """sub-queries, one a stage ─► retrieve ─► answers put in order, or passages pooled   (section 3.4)"""

    question_type = QuestionType.INSTRUCTION
    decompose_signature = typed_rag.DecomposeInstruction
    paraphrase_signature = typed_rag.ParaphraseInstruction
    sub_answer_signature = answering.AnswerSubQuery
    combine_signature = typed_rag.ArrangeSteps
    pooled_signature = answering.AnswerInstruction


class Debate(DecomposingStrategy):
    """topic, sides, one biased sub-query each ─► retrieve ─► answers mediated, or passages pooled   (section 3.5)"""

    question_type = QuestionType.DEBATE
    decompose_signature = typed_rag.FrameDebate
    sub_answer_signature = answering.AnswerFromPerspective
    combine_signature = typed_rag.MediatePerspectives
    combine_step = "mediate"
    pooled_signature = answering.AnswerDebate
    least_sub_queries = 2

    def build_decomposer(self, signature: Any) -> dspy.Module:
        """The module that writes the sides; with the option `debate_gate` it may find that there are none."""
        return predictor(signature if self.options.debate_gate else typed_rag.FrameSides)

    def read_parts(self, prediction: dspy.Prediction) -> Decomposition:
        if not prediction.get("is_debate", True):
            return Decomposition([], why_none="people do not disagree on the question")
        sides = prediction.sides.root
        return Decomposition(
            sub_queries=[s.sub_query for s in sides],
            topic=prediction.topic,
            # reversed, so that the first of several sides with the same sub-query is kept
            perspectives={" ".join(s.sub_query.split()): s.perspective for s in reversed(sides)},
        )

    def unanswered_note(self, unanswered: Sequence[Part]) -> str:
        """A sentence that names the sides without passages, so that the answer is not taken for a balanced one."""
        sides = ", ".join(part.perspective for part in unanswered)
        return f"The collection holds no case for: {sides}." if sides else ""

    def pooled(self, question: str, parts: Decomposition, sub_queries: Sequence[str]) -> list[Passage]:
        """The passages to answer from, in turns: the best of each side and of the question, then their second ones.

        Ranked together for the question, most would be of the side that has most to say.
        """
        neutral, *sides = self.search_each([question, *self.search_queries(question, sub_queries)])
        pool = round_robin([*sides, neutral])
        best = pool[: self.options.answer_passages]
        add_step(Step("pool", f"{len(pool)} passages", passage_ids=tuple(p.id for p in best)))
        return best

    def combiner_inputs(self, parts: Decomposition, answers: Sequence[SubAnswer]) -> dict[str, Any]:
        sides = [PerspectiveAnswer(perspective=a.perspective, answer=a.answer) for a in answers]
        return {"topic": parts.topic, "perspectives": sides}


class Remark(Retrieving):
    """A polite reply to small talk, after a search that found nothing on it"""

    def build(self) -> None:
        self.reply = dspy.Predict(answering.ReplyToRemark)

    def forward(self, question: str) -> dspy.Prediction:
        reply = ask("reply", self.reply, retries=self.options.retries, remark=question)
        add_step(Step("reply", question, reply.prediction.answer, seconds=reply.seconds, usage=reply.usage))
        return dspy.Prediction(answer=reply.prediction.answer.strip(), answered=Answered.NOTHING)


STRATEGIES: dict[QuestionType, type[Retrieving]] = {
    QuestionType.EVIDENCE_BASED: EvidenceBased,
    QuestionType.COMPARISON: Comparison,
    QuestionType.EXPERIENCE: Experience,
    QuestionType.REASON: Reason,
    QuestionType.INSTRUCTION: Instruction,
    QuestionType.DEBATE: Debate,
    QuestionType.NOT_A_QUESTION: Remark,
}
