"""Searching, reranking, and answers written from passages, with citations that can be followed."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import dspy

from typedrag.core.errors import StepFailed
from typedrag.core.events import Read, Searched, emit
from typedrag.core.records import Answered, Passage, Step
from typedrag.lms.asking import Reply, ask
from typedrag.lms.trace import Stopwatch, add_step, record_fallback, reserve_calls
from typedrag.programs.options import Options
from typedrag.retrieval import Reranker, Retriever, reciprocal_rank_fusion
from typedrag.retrieval.relevance_filter import build_relevance_filter
from typedrag.signatures import sub_question_coverage, typed_rag
from typedrag.signatures.answering import (
    AnswerFromPassages,
    AnswerFromPerspective,
    AnswerInPhrase,
    AnswerInPhraseWithoutPassages,
    AnswerSubQuery,
    AnswerWithoutPassages,
    ComposePhrase,
    QuotePassages,
)
from typedrag.signatures.fields import Citations, number_passages
from typedrag.signatures.hanrag import ComposeAnswer
from typedrag.signatures.preqrag import PLAIN_STYLES, PROMPT_STYLES, AnswerFromSubAnswers
from typedrag.signatures.richrag import PLAIN_RICHLY
from typedrag.text.language import detect_language, detect_main_language
from typedrag.text.sentences import passage_share, used_passages

_IN_PHRASE: Mapping[type[dspy.Signature], type[dspy.Signature]] = {
    AnswerFromPassages: AnswerInPhrase,
    AnswerSubQuery: AnswerInPhrase,
    AnswerWithoutPassages: AnswerInPhraseWithoutPassages,
    ComposeAnswer: ComposePhrase,
    AnswerFromSubAnswers: ComposePhrase,
    **dict.fromkeys(PROMPT_STYLES.values(), AnswerInPhrase),
}
_PLAIN = {**typed_rag.PLAIN, **sub_question_coverage.PLAIN, **PLAIN_STYLES, **PLAIN_RICHLY}


def prompt_signature(signature: type[dspy.Signature], options: Options) -> type[dspy.Signature]:
    """The signature, or its plain one if the option `answer_prompt` is `plain`."""
    return _PLAIN.get(signature, signature) if options.answer_prompt == "plain" else signature


def answer_signature(
    signature: type[dspy.Signature], options: Options, *, may_be_phrase: bool = False
) -> type[dspy.Signature]:
    """The signature of an answer as the options `answer_length`, `answer_prompt` and `answer_words` have it: itself,
    that of a phrase, the plain one, or one of about so many words.

    Example:
        >>> answer_signature(AnswerFromPassages, Options(answer_length="phrase"), may_be_phrase=True).__name__
        'AnswerInPhrase'
        >>> answer_signature(AnswerSubQuery, Options(answer_prompt="plain")).__name__
        'AnswerPlainly'
        >>> fields = answer_signature(AnswerFromPassages, Options(answer_words=300)).output_fields
        >>> fields["answer"].json_schema_extra["desc"]
        'what an expert would tell the asker, in about 300 words'
    """
    phrase = may_be_phrase and options.answer_length == "phrase"
    chosen = prompt_signature(_IN_PHRASE[signature] if phrase else signature, options)
    if phrase or options.answer_words is None or signature in (AnswerSubQuery, AnswerFromPerspective):
        return chosen
    length, usual = f"about {options.answer_words} words", chosen.output_fields["answer"].json_schema_extra["desc"]
    text, replaced = re.subn("one (to three|or two) paragraphs", length, usual)
    return chosen.with_updated_fields("answer", desc=text if replaced else length)


class Cited(NamedTuple):
    ids: tuple[str, ...]
    dropped: tuple[str, ...]


def check_citations(numbers: Sequence[int], answer: str, passages: Sequence[Passage], question: str) -> Cited:
    """Keep the citations, by number from 1, of passages that exist and that the answer uses.

    Small LMs tend to cite every passage they see. If `used_passages` would leave none, as when answer
    and passages differ in language, all cited passages are kept.

    Example:
        >>> passages = [Passage("yeast", "Old yeast makes little gas."), Passage("cats", "Cats make noise at night.")]
        >>> check_citations([1, 2, 7], "Bread gets dense because old yeast makes little gas.", passages, "Why?")
        Cited(ids=('yeast',), dropped=('citation cats (the answer uses nothing of it)', 'citation 7 (no such passage)'))
    """
    cited = list(dict.fromkeys(numbers))
    existing = [passages[n - 1] for n in cited if 1 <= n <= len(passages)]
    used = used_passages(answer, existing, question) or {p.id for p in existing}
    return Cited(
        ids=tuple(dict.fromkeys(p.id for p in existing if p.id in used)),  # a list ranker may repeat a passage
        dropped=(
            *(f"citation {p.id} (the answer uses nothing of it)" for p in existing if p.id not in used),
            *(f"citation {n} (no such passage)" for n in cited if not 1 <= n <= len(passages)),
        ),
    )


class NotAnswered(StepFailed):
    """The collection holds no answer: no passage was found, or none of those that the LM saw answers the question."""

    def __init__(self, step: str, problem: str, passages: Sequence[Passage] = ()) -> None:
        super().__init__(step, problem)
        self.passages = tuple(passages)


class NothingFound(NotAnswered):
    """No passage was found, or none of those found passes the relevance filter."""

    def __init__(self, query: str, count: int = 0) -> None:
        if count:
            super().__init__("relevance", f"none of {count} passages found for '{query}' is relevant")
        else:
            super().__init__("retrieve", f"no passage found for '{query}'")


class AnswerFailed(StepFailed):
    """No answer could be read from the replies of the LM, which saw some passages."""

    def __init__(self, failure: StepFailed, passages: Sequence[Passage]) -> None:
        super().__init__(failure.step, failure.problem)
        self.passages = tuple(passages)


def is_final(failure: StepFailed) -> bool:
    """True if passages were read and hold no answer, so that no other way of answering is tried."""
    return isinstance(failure, NotAnswered) and not isinstance(failure, NothingFound)


def answer_without_passages(predict: dspy.Predict, question: str, *, retries: int) -> dspy.Prediction:
    """Answer from the LM's own knowledge, by a predictor of the signature `AnswerWithoutPassages`."""
    emit(Read, passages=())
    reply = ask("answer", predict, retries=retries, question=question)
    answer = reply.prediction.answer.strip()
    add_step(Step("answer", question, answer, seconds=reply.seconds, usage=reply.usage))
    return dspy.Prediction(answer=answer, passages=(), citations=(), answered=Answered.KNOWLEDGE)


class PassageAnswerer(dspy.Module):
    """Writes an answer by a signature with the inputs `passages` and `question`, perhaps more."""

    def __init__(self, signature: type[dspy.Signature], options: Options, *, may_be_phrase: bool = False) -> None:
        super().__init__()
        self.predict = dspy.Predict(answer_signature(signature, options, may_be_phrase=may_be_phrase))
        self.options = options
        phrase = may_be_phrase and options.answer_length == "phrase"
        self.least_support = 0.0 if phrase or options.answer_prompt == "plain" else options.answer_support
        self.gate = build_relevance_filter(
            options.relevance, options.relevance_threshold, passage_words=options.passage_words, retries=options.retries
        )

    @property
    def lm_calls(self) -> int:
        return 1 + (self.gate.lm_calls if self.gate else 0)

    def forward(self, question: str, passages: Sequence[Passage], **inputs: Any) -> dspy.Prediction:
        """Answer from the first `answer_passages` passages that pass the relevance filter (option `relevance`).

        The LM's `answered` decides whether the passages hold an answer; if it is false, an answer that was written
        anyway is dropped, even with citations. If it is true, an answer without citations is kept, though ungrounded.
        An answer that its passages do not support is asked for again, as quotes (option `answer_support`).

        Returns:
            A prediction with `answer`, `passages` (those the LM saw), `citations` (ids of the passages
            that the answer cites and uses, see `check_citations`) and `answered`.
        """
        relevant = self.gate.relevant(question, passages) if self.gate else passages
        if not relevant:
            raise NothingFound(question, len(passages))
        shown = tuple(relevant[: self.options.answer_passages])
        emit(Read, passages=shown)
        inputs |= {"passages": number_passages(shown, self.options.passage_words), "question": question}
        try:
            reply = ask("answer", self.predict, retries=self.options.retries, **inputs)
        except StepFailed as failure:
            raise AnswerFailed(failure, shown) from failure
        if reply.prediction.get("answered", True) and not self.is_supported(reply.prediction.answer, question, shown):
            reply = self.quote(reply, question, shown, inputs)
        answer = reply.prediction.answer.strip()
        step = partial(Step, "answer", question, seconds=reply.seconds, usage=reply.usage)
        if not reply.prediction.get("answered", True):
            dropped = (f"{answer} (the LM says that the passages hold no answer)",) if answer else ()
            add_step(step(output="not answered", dropped=dropped))
            raise NotAnswered("answer", f"the passages do not answer '{question}'", shown)
        numbers = reply.prediction.get("citations", Citations([])).root
        cited = check_citations(numbers, answer, shown, question)
        add_step(step(output=answer, passage_ids=cited.ids, dropped=cited.dropped))
        return dspy.Prediction(answer=answer, passages=shown, citations=cited.ids, answered=Answered.PASSAGES)

    def is_supported(self, answer: str, question: str, passages: Sequence[Passage]) -> bool:
        if not self.least_support or passage_share(answer, passages, question) >= self.least_support:
            return True
        return detect_language(answer) != detect_main_language(p.text for p in passages)

    def quote(self, reply: Reply, question: str, passages: Sequence[Passage], inputs: Mapping[str, Any]) -> Reply:
        """The reply of an LM that is to quote; the first one if it cannot be asked again."""
        signature = self.predict.signature.with_instructions(QuotePassages.instructions)
        desc = QuotePassages.output_fields["answer"].json_schema_extra["desc"]
        predict = dspy.Predict(signature.with_updated_fields("answer", desc=desc))
        try:
            quotes = ask("quote", predict, retries=self.options.retries, **inputs)
        except StepFailed as failure:
            record_fallback(failure, "the answer stays, though its passages support little of it")
            return reply
        draft = reply.prediction.answer.strip()
        dropped = (f"{draft} (its passages support little of it)",)
        add_step(Step("answer", question, dropped=dropped, seconds=reply.seconds, usage=reply.usage))
        if not self.is_supported(quotes.prediction.answer, question, passages):
            quotes.prediction.answered = False
        return quotes


class Retrieving(dspy.Module):
    """Searches, reranks and answers from the passages found: the base of ways to answer."""

    answers_by: ClassVar[type[dspy.Signature] | None] = None  # the signature of `answer`, for those that have one
    may_be_phrase: ClassVar[bool] = False

    def __init__(self, retriever: Retriever, reranker: Reranker, options: Options) -> None:
        super().__init__()
        self.retriever, self.reranker, self.options = retriever, reranker, options
        self.build()
        if self.answers_by:
            self.answer = PassageAnswerer(self.answers_by, options, may_be_phrase=self.may_be_phrase)

    def build(self) -> None:
        """Build the modules that come before the answer."""

    @property
    def chooses(self) -> bool:
        """True if the reranker chooses among the passages found, rather than keeping their order."""
        return getattr(self.reranker, "chooses", True)

    def search(self, queries: Sequence[str], *, rerank: bool, depth: int | None = None) -> list[list[Passage]]:
        """Retrieve for all queries in one batch: `depth` each, by default `top_k`, more if a reranker is to choose."""
        watch = Stopwatch()
        chooses = rerank and self.chooses
        if depth is None:
            depth = max(self.options.top_k, self.options.rerank_candidates) if chooses else self.options.top_k
        emit(Searched, queries=tuple(queries))
        rankings = list(self.retriever.search(queries, depth))
        if not chooses and (share := self.options.score_cutoff):
            for i, ranking in enumerate(rankings):
                best = ranking[0].score if ranking else 0.0
                lowest = best - (1 - share) * abs(best)  # cosines can be below 0
                rankings[i] = [p for p in ranking if p.score >= lowest]
        steps = [
            Step("query", query, passage_ids=tuple(p.id for p in ranking))
            for query, ranking in zip(queries, rankings, strict=True)
        ]
        if len(steps) == 1:
            add_step(Step("retrieve", queries[0], passage_ids=steps[0].passage_ids, seconds=watch.seconds))
        else:
            add_step(Step("retrieve", f"{len(steps)} queries", seconds=watch.seconds, steps=tuple(steps)))
        return rankings

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The `k` best passages for a query; a reranker that asks the LM leaves a call for the answer."""
        watch = Stopwatch()
        with reserve_calls(1):
            reranked = self.reranker.rerank(query, passages, k)
        if self.chooses:
            add_step(Step("rerank", query, passage_ids=tuple(p.id for p in reranked), seconds=watch.seconds))
        return reranked

    def search_each(self, queries: Sequence[str]) -> list[list[Passage]]:
        rankings = self.search(queries, rerank=True)
        return [self.rerank(q, passages, self.options.top_k) for q, passages in zip(queries, rankings, strict=True)]

    def pool(self, query: str, rankings: Sequence[Sequence[Passage]]) -> list[Passage]:
        """Pool rankings without duplicates and keep the best passages for a query."""
        pooled = reciprocal_rank_fusion(rankings)
        best = self.rerank(query, pooled, self.options.answer_passages)
        add_step(Step("pool", f"{len(pooled)} passages", passage_ids=tuple(p.id for p in best)))
        return best

    def final_answer(
        self, answerer: PassageAnswerer, question: str, passages: Sequence[Passage], **inputs: Any
    ) -> dspy.Prediction:
        """Answer from passages; if no answer can be read, give the best passage that the LM saw as it is."""
        try:
            return answerer(question=question, passages=passages, **inputs)
        except AnswerFailed as failure:
            record_fallback(failure, "the best passage found is given as it is")
            best = failure.passages[0]
            return dspy.Prediction(answer=best.text, passages=failure.passages, citations=(best.id,))
