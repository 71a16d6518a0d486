"""PreQRAG: questions to one document or to many, rewritten for each kind of search (paper 3, figure 1).

Scope classifiers are modules that take a `question` and return a `dspy.Prediction` with `scope`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, NamedTuple

import dspy

from typedrag.core.call_context import call_context
from typedrag.core.errors import InputError, StepFailed
from typedrag.core.events import Classified, Searched, emit
from typedrag.core.question_types import DocumentScope
from typedrag.core.records import Passage, Step
from typedrag.lms.asking import ask
from typedrag.lms.trace import Stopwatch, add_step, record_fallback, reserve_calls, run_concurrently
from typedrag.programs.answering import NotAnswered, PassageAnswerer, Retrieving, answer_signature
from typedrag.programs.options import Options
from typedrag.programs.program import RETRIEVING, Program, program
from typedrag.programs.sub_queries import (
    Similarity,
    answer_parts,
    collect_answers,
    combine_answers,
    combine_parts,
    drop_unused_citations,
    filter_reply,
    question_answers,
    topic_similarity,
)
from typedrag.retrieval import HybridRetriever, Retriever, retriever_parts
from typedrag.retrieval.search.hybrid import FUSION_DEPTH
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.preqrag import (
    PROMPT_STYLES,
    AnswerFromSubAnswers,
    ClassifyDocumentScope,
    RewriteForDense,
    RewriteForSparse,
    SplitQuestion,
)

_ASKS = r"(?:what|how|why|when|where|which|who|whom|whose)"
_VERBS = r"(?:is|are|was|were|do|does|did|can|could|should|would|will|has|have)"
_MORE = (
    r"(?:better|worse|more|less|larger|bigger|smaller|greater|higher|lower|longer|shorter|older|younger|faster|slower|"
    r"stronger|weaker|safer|healthier|cheaper|dearer|easier|harder|warmer|colder|heavier|lighter|richer|poorer|"
    r"earlier|later|sooner)"
)
_CHOICE = rf"(?:which|best|prefer|choose|should|{_MORE})"
_ONE_MATTER = (
    r"(?:pros|advantages|positives?|strengths|signs|ins|ups|rise|life|terms|names?|times?|dates?|supply|trial|"
    r"risks and benefits|benefits and risks|costs and benefits|rules and regulations) (?:and|&)"
)
"""Beginnings of pairs that documents treat together, such as "pros and cons"."""
_NO_ASPECT = (
    r"(?:out|kinds?|sorts?|types?|lots?|because|instead|most|much|many|some|one|each|all|any|none|few|several|parts?|"
    r"rest|half|third|quarter|numbers?|amounts?|plenty|pieces?|cups?|top|front|inside|outside|middle|ahead|rid|made|"
    r"think|thought|dream|hear|heard|speak|talk|consist|afraid|aware|full|capable|north|south|east|west)"
)
"""Words before "of" that name no aspect of what follows."""
_CUES: tuple[tuple[str, str], ...] = (
    ("asks twice", r"\?[^?]*\w[^?]*\?"),
    ("compares", r"\b(?:compare[sd]?|comparing|comparison|contrasts?|contrasting|versus|vs)\b"),
    ("compares", r"\b(?:differs?|differences?|distinguish(?:es)?|similar|similarit(?:y|ies)|alike|unlike)\b"),
    ("compares", r"\bdifferent (?:from|than|to)\b|\b(?:rather|\w+er) than (?!\d)|\bas opposed to\b"),
    ("compares", rf"\b{_MORE}\b[^?]*? than (?!\d)"),
    ("compares", rf"\b{_CHOICE}\b.*\bor\b|\bor\b.*\b{_CHOICE}\b"),
    (
        "joins two questions",
        rf"\b(?:and|or|but|while|also)\b,? (?:(?:also|then|in|by|for|to|on|at|with|of|from) )?(?:{_ASKS}|{_VERBS})\b",
    ),
    ("joins two matters", r"\b(?:both|respectively|as well as|along with|together with|in addition to)\b"),
    ("joins two matters", r"\bbetween (?!\d)[^?]+? and (?!\d)|\band\b[^?]*? each\b"),
    ("joins two matters", r"\b(of|in|for|by|with|from) [^?,]+? and \1\b"),
    (
        "joins two aspects",
        rf"\b(?!{_ONE_MATTER})[^\W\d]{{3,}} (?:and|&) (?:(?:the|its|their) )?(?:[\w-]+ )?"
        rf"(?!{_NO_ASPECT}\b)[^\W\d]{{3,}} of\b(?! course)",
    ),
)
_PATTERNS = tuple((cue, re.compile(pattern, re.IGNORECASE | re.DOTALL)) for cue, pattern in _CUES)


def multi_document_cue(question: str) -> str:
    """The cue in the wording of a question that it needs several documents; empty if there is none.

    The paper names no rules. These match how its two multi-document categories (appendix D) are worded
    in English: a comparison, or two aspects that are asked for together.

    Example:
        >>> multi_document_cue("How does Azure Firewall segment networks, and what are its compliance aspects?")
        'joins two questions'
        >>> multi_document_cue("I develop protein methods and wonder what improvements are made to HDX?")
        ''
        >>> multi_document_cue("Is tea or coffee the better drink?"), multi_document_cue("Tea vs. coffee")
        ('compares', 'compares')
    """
    return next((cue for cue, pattern in _PATTERNS if pattern.search(question)), "")


class ScopeClassifier(dspy.Module):
    """Names a question's scope without an LM: by its wording, or the scope that is given, or with `oracle` the one that
    the question's dataset labels, which is its subset."""

    def __init__(self, classifier: str | DocumentScope = "rule") -> None:
        super().__init__()
        self._classifier = classifier

    def forward(self, question: str) -> dspy.Prediction:
        watch, why = Stopwatch(), ""
        if isinstance(self._classifier, DocumentScope):
            scope = self._classifier
        elif self._classifier == "oracle":
            subset = call_context().labels.get("subset")
            if subset not in tuple(DocumentScope):
                lack = f"subset '{subset}' is no scope" if subset else "the question has no labelled scope"
                raise InputError(
                    f"the classifier is an oracle, but {lack}",
                    f"Evaluate it on a dataset with the subsets {' and '.join(DocumentScope)}",
                )
            scope = DocumentScope(subset)
        else:
            cue = multi_document_cue(question)
            scope, why = (DocumentScope.MULTI, f" (it {cue})") if cue else (DocumentScope.SINGLE, "")
        add_step(Step("classify", question, f"{scope}{why}", seconds=watch.seconds))
        return dspy.Prediction(scope=scope)


class LMScopeClassifier(dspy.Module):
    """Names a question's scope by asking the LM.

    With classifier `either` several documents win if the rule or the LM says so, with `both` if they agree; the LM is
    only asked where the rule leaves it open. (The paper combines them and does not say how.)
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.classify = dspy.Predict(ClassifyDocumentScope)
        self._rule = ScopeClassifier()
        self._retries = options.retries
        self._cue_that_settles = {"either": True, "both": False}.get(str(options.preqrag.classifier))

    def forward(self, question: str) -> dspy.Prediction:
        if bool(multi_document_cue(question)) is self._cue_that_settles:
            return self._rule(question=question)
        try:
            reply = ask("classify", self.classify, retries=self._retries, question=question)
        except StepFailed as failure:
            record_fallback(failure, "classified by rule")
            return self._rule(question=question)
        scope = DocumentScope(reply.prediction.scope)
        add_step(Step("classify", question, scope, seconds=reply.seconds, usage=reply.usage))
        return dspy.Prediction(scope=scope)


def build_scope_classifier(options: Options) -> dspy.Module:
    classifier = options.preqrag.classifier
    return LMScopeClassifier(options) if classifier in ("lm", "either", "both") else ScopeClassifier(classifier)


AS_IT_STANDS = "searched for as it stands"


@program
class PreQRAG(Program):
    """question ─► one document or several?
      one     ─► a rewrite for BM25, another for the dense part ┐
      several ─► two sub-questions, each for both parts         ┴► fuse ─► rerank ─► top 3 ─► answer

    A multi-document question is answered from the passages of both sub-questions, from their answers, or
    by joining these (option `generation`). If its rewrite or split fails, the question itself is searched
    with. If the index has only one part, only that is searched. The answer's `route` is the question's scope.
    """

    name: ClassVar[str] = "preqrag"
    reads = (RETRIEVING - {"answer_passages", "score_cutoff"}) | {"preqrag", "sift", "threads"}
    searches: ClassVar[str] = "auto"

    def build(self, retriever: Retriever) -> None:
        own = self.options.preqrag
        options = self.options.model_copy(update={"answer_passages": own.passages})
        self.classifier = build_scope_classifier(options)
        self.rewriter = QuestionRewriter(retriever, options, topic_similarity(retriever, self.reranker))
        self.search = HybridSearch(retriever, self.reranker, options)
        self.answer = PassageAnswerer(PROMPT_STYLES[own.prompt_style], options, may_be_phrase=True)
        if own.generation == 2:
            self.combine = dspy.Predict(answer_signature(AnswerFromSubAnswers, options, may_be_phrase=True))

    def respond(self, question: str) -> dspy.Prediction:
        scope = self.classifier(question=question).scope
        emit(Classified, route=scope.value)
        rewritten = self.rewriter(question=question, scope=scope)
        rankings = self.search.each(rewritten.needs)
        answer = None
        try:
            if rewritten.get("split") and self.options.preqrag.generation > 1:
                try:
                    answer = self._in_two_steps(question, rewritten.needs, rankings)
                except NotAnswered:
                    raise
                except StepFailed as failure:
                    record_fallback(failure, "answered from the passages of both sub-questions")
            if answer is None:
                answer = self.search.final_answer(self.answer, question, self.search.pool(question, rankings))
        except NotAnswered as failure:
            answer = self.not_answered(question, failure)
        return dspy.Prediction(**{**answer.toDict(), "route": scope.value})

    def _in_two_steps(self, question: str, needs: Sequence[Need], rankings: Sequence[list[Passage]]) -> dspy.Prediction:
        """Methods 2 and 3: the sub-questions are answered, each from its own passages (appendix B.1)."""
        joins = self.options.preqrag.generation == 2

        def sub_answer(need: Need, ranking: list[Passage]) -> dspy.Prediction:
            with reserve_calls(int(joins)):
                with reserve_calls(1):  # for the answer to the other sub-question
                    best = self.search.rerank(need.question, ranking, self.options.preqrag.passages)
                return self.answer(question=need.question, passages=best)

        pairs = zip(needs, rankings, strict=True)
        answerers = {need.question: partial(sub_answer, need, ranking) for need, ranking in pairs}
        parts = answer_parts(answerers, self.options.threads)
        answers = collect_answers(parts)
        answer = "\n\n".join(a.answer for a in answers)
        if joins:
            shown, retries = question_answers(answers), self.options.retries
            answer = combine_answers(
                "combine", self.combine, answer, retries=retries, question=question, sub_answers=shown
            )
        return drop_unused_citations(combine_parts(answer, parts), question)


class Need(NamedTuple):
    """A question to find passages for, with a query for each part of the index."""

    question: str  # the question that the passages should answer
    sparse: str  # the query for BM25
    dense: str  # the query for the dense part


class QuestionRewriter(dspy.Module):
    """question, scope ─► what to search for: one need with a rewrite for each part of the retriever, or two needs
    (section 2.2)"""

    def __init__(self, retriever: Retriever, options: Options, near: Similarity | None = None) -> None:
        super().__init__()
        self._near = near
        self.for_sparse = predictor(RewriteForSparse)
        self.for_dense = predictor(RewriteForDense)
        self.split = predictor(SplitQuestion)
        self._has = retriever_parts(retriever)
        self._options = options

    def forward(self, question: str, scope: DocumentScope) -> dspy.Prediction:
        """A prediction with `needs`, and `split` if they are the question's two parts."""
        if scope is DocumentScope.MULTI:
            return self._split(question)

        def rewrite(pair: tuple[dspy.Predict, str]) -> str:
            predict, field = pair
            try:
                reply = ask("rewrite", predict, retries=self._options.retries, question=question)
            except StepFailed as failure:
                record_fallback(failure, AS_IT_STANDS)
                return question
            query = " ".join(reply.prediction[field].root.split()) or question
            add_step(Step("rewrite", question, query, seconds=reply.seconds, usage=reply.usage))
            return query

        pairs = {"sparse": (self.for_sparse, "sparse_query"), "dense": (self.for_dense, "dense_query")}
        searched = [part for part in pairs if getattr(self._has, part)]
        queries = run_concurrently(rewrite, [pairs[part] for part in searched], self._options.threads)
        need = Need(question, question, question)._replace(**dict(zip(searched, queries, strict=True)))
        return dspy.Prediction(needs=[need])

    def _split(self, question: str) -> dspy.Prediction:
        whole = Need(question, question, question)
        try:
            reply = ask("decompose", self.split, retries=self._options.retries, question=question)
        except StepFailed as failure:
            record_fallback(failure, AS_IT_STANDS)
            return dspy.Prediction(needs=[whole])
        written = reply.prediction.two_sub_questions.root
        sub_questions = filter_reply(reply, question, written, self.split, self._options, limit=2, near=self._near)
        needs = [Need(s, s, s) for s in sub_questions]
        if len(needs) == 2:
            return dspy.Prediction(needs=needs, split=True)
        record_fallback(StepFailed("decompose", "no two usable sub-questions came out"), AS_IT_STANDS)
        return dspy.Prediction(needs=[whole, *needs])


class HybridSearch(Retrieving):
    """needs ─► BM25 and the dense part, each by its own queries ─► fused, a ranking for each need (section 2.3)

    Of a retriever with one part only that is searched. A reranker chooses among the passages found (section 2.4).
    """

    def build(self) -> None:
        self._parts = retriever_parts(self.retriever)

    def each(self, needs: Sequence[Need]) -> list[list[Passage]]:
        """The `top_k` passages for each need; the candidates of both parts if a reranker chooses among them."""
        watch = Stopwatch()
        count = max(self.options.top_k, self.options.rerank_candidates) if self.chooses else self.options.top_k
        fused = isinstance(self.retriever, HybridRetriever) and not self.chooses
        depth = max(count, FUSION_DEPTH) if fused else count
        by_part: list[list[list[Passage]]] = []
        steps: list[Step] = []
        for name, part, queries in (
            ("bm25", self._parts.sparse, [need.sparse for need in needs]),
            ("dense", self._parts.dense, [need.dense for need in needs]),
        ):
            if part is not None:
                emit(Searched, queries=tuple(queries))
                rankings = part.search(queries, depth)
                by_part.append(rankings)
                steps += [
                    Step(name, query, passage_ids=tuple(p.id for p in ranking[:count]))
                    for query, ranking in zip(queries, rankings, strict=True)
                ]
        unsearched = () if all(self._parts) else (f"{'dense' if self._parts.sparse else 'bm25'} (it is not searched)",)
        add_step(
            Step("retrieve", f"{len(steps)} queries", dropped=unsearched, seconds=watch.seconds, steps=tuple(steps))
        )
        if isinstance(self.retriever, HybridRetriever):
            return [self.retriever.fuse(*lists)[: count if fused else None] for lists in zip(*by_part, strict=True)]
        return by_part[0]
