"""RichRAG: the sub-aspects of a broad question decide what is retrieved and how it is ranked (RichRAG, figure 2a)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import dspy

from typedrag.core.call_context import call_context
from typedrag.core.errors import InputError, StepFailed
from typedrag.core.records import Passage, Step
from typedrag.lms.asking import ask
from typedrag.lms.lm import use_role_lm
from typedrag.lms.trace import Stopwatch, add_step, record_fallback
from typedrag.programs.answering import PassageAnswerer, Retrieving
from typedrag.programs.options import Options
from typedrag.programs.program import RETRIEVING, StrategyProgram, program
from typedrag.retrieval import AspectReranker
from typedrag.retrieval.search.hybrid import reciprocal_rank_fusion, round_robin
from typedrag.signatures.demonstrations import predictor
from typedrag.signatures.richrag import AnswerByAspects, AnswerRichly, ExploreSubAspects
from typedrag.text.words import content_words


class SubAspectExplorer(dspy.Module):
    """Names the sub-aspects of a question (RichRAG, section 3.2) and records the step."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.options = options
        self.predict = predictor(ExploreSubAspects)

    def forward(self, question: str) -> dspy.Prediction:
        with use_role_lm(self.options.richrag.explorer_lm):
            reply = ask("decompose", self.predict, retries=self.options.retries, question=question)
        named, most = reply.prediction.sub_aspects.root, self.options.richrag.max_aspects
        sub_aspects, dropped = distinct(named, most, check=self.options.sift)
        written = "; ".join(sub_aspects)
        add_step(Step("decompose", question, written, dropped=dropped, seconds=reply.seconds, usage=reply.usage))
        return dspy.Prediction(sub_aspects=sub_aspects)


class _MultiFaceted(Retrieving):
    """Searches for sub-aspects; for the question alone, as `fallback` says, if none can be read."""

    def build(self) -> None:
        self.explorer = SubAspectExplorer(self.options)
        signature = AnswerByAspects if self.options.richrag.tell_aspects else AnswerRichly
        self.answer = PassageAnswerer(signature, self.options)

    def forward(self, question: str) -> dspy.Prediction:
        options, k = self.options.richrag, self.options.answer_passages
        searches = options.search == "aspects"
        aspects: list[str] = []
        if (searches or options.tell_aspects) and options.aspects == "golden":
            aspects = list(dict.fromkeys(call_context().labels.get("aspects") or ()))
            if not aspects:
                raise InputError(
                    "the sub-aspects are golden, but the question has no labelled ones",
                    "Set richrag.aspects=predicted, or evaluate it on a dataset whose questions have aspects",
                )
            add_step(Step("decompose", question, "; ".join(aspects)))
        elif searches or options.tell_aspects:
            try:
                aspects = list(self.explorer(question=question).sub_aspects)
            except StepFailed as failure:
                record_fallback(
                    failure, "searched with the question alone" if searches else "answered without sub-aspects"
                )
        # each is searched for together with the question (eq. 3 and 4)
        searched = aspects if searches else []
        rankings = self.search(aspect_queries(question, searched), rerank=True, depth=options.passages_per_aspect)
        pool = merge(rankings, searched, options.pool_limit, fuse=options.merge == "fusion")
        add_step(Step("pool", f"{len(pool.passages)} passages", passage_ids=tuple(p.id for p in pool.passages)))
        if isinstance(self.reranker, AspectReranker) and pool.passages:  # eq. 6
            watch = Stopwatch()
            ranked = self.reranker.rerank_by_aspects(question, pool.passages, k, pool.aspects, repeat=options.repeat)
            add_step(Step("rerank", question, passage_ids=tuple(p.id for p in ranked), seconds=watch.seconds))
        else:
            ranked = self.rerank(question, pool.passages, k)
        inputs = {"sub_aspects": aspects} if options.tell_aspects else {}
        return self.final_answer(self.answer, question, ranked, **inputs)


@program
class RichRAG(StrategyProgram):
    """question ─► sub-aspects ─► retrieve for each, joined to the question ─► pool ─► rank ─► answer

    A list ranker (`list:FOLDER`) reads which sub-aspects each passage was found for; any other
    reranker ranks by the question; with none, the first passages of all sub-aspects come first.

    Options `aspects`, `search`, `merge` and `tell_aspects` of `richrag` make what the paper compares it with.
    """

    name: ClassVar[str] = "richrag"
    reads = (RETRIEVING - {"top_k", "rerank_candidates", "answer_length"}) | {"richrag", "sift"}
    strategy_class = _MultiFaceted


def distinct(aspects: Sequence[str], limit: int, *, check: bool = True) -> tuple[list[str], tuple[str, ...]]:
    """The sub-aspects to search for, and the dropped ones with the reason; without `check`, as published, those with
    the same content words as another stay.

    Example:
        >>> distinct(["origins", "Style ", "the origin", "fame"], limit=2)
        (['origins', 'Style'], ('the origin (repeats another)', 'fame (one more than the 2 allowed)'))
    """
    by_words: dict[object, str] = {}
    dropped = []
    for aspect in (" ".join(a.split()) for a in aspects):
        words = (check and content_words(aspect)) or aspect.casefold()
        if words in by_words:
            dropped.append(f"{aspect} (repeats another)")
        elif len(by_words) == limit:
            dropped.append(f"{aspect} (one more than the {limit} allowed)")
        else:
            by_words[words] = aspect
    return list(by_words.values()), tuple(dropped)


def aspect_queries(question: str, aspects: Sequence[str]) -> list[str]:
    """The question joined with each sub-aspect, or the question alone if it has none (eq. 3)."""
    return [f"{question} {aspect}" for aspect in aspects] or [question]


class Pool(NamedTuple):
    """Distinct candidates, and the sub-aspects that each was found for, by its id."""

    passages: list[Passage]
    aspects: Mapping[str, tuple[str, ...]]


def merge(
    rankings: Sequence[Sequence[Passage]], aspects: Sequence[str], limit: int | None, *, fuse: bool = False
) -> Pool:
    """Pool the rankings of all sub-aspects (eq. 4), at most `limit` passages.

    The paper leaves open which passages to drop from a full pool. Here the first passages of all rankings
    come before the second ones, so that each sub-aspect has its share; with `fuse` they are in the order of reciprocal
    rank fusion, as in RAG-Fusion (section 4.2).

    Example:
        >>> a, b, c = (Passage(id=i, text=i) for i in "abc")
        >>> pool = merge([[a, b], [c, a]], ["origin", "style"], limit=2)
        >>> [p.id for p in pool.passages], pool.aspects
        (['a', 'c'], {'a': ('origin', 'style'), 'c': ('style',)})
    """
    passages = (reciprocal_rank_fusion(rankings) if fuse else round_robin(rankings))[:limit]
    finders = [(aspect, {p.id for p in ranking}) for aspect, ranking in zip(aspects, rankings, strict=False)]
    return Pool(passages, {p.id: tuple(aspect for aspect, ids in finders if p.id in ids) for p in passages})
