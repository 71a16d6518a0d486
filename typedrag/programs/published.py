"""The options of each program as its paper has them, and nothing of ours.

What is left of differences is told by the pages in docs/systems.
"""

from __future__ import annotations

from collections.abc import Mapping

from typedrag.core.errors import InputError
from typedrag.programs.options import EACH_ANSWERED, Options, RichRAGOptions

NF_CATS = "hub:Lurunchik/nf-cats"
"""The type classifier of Typed-RAG (section 4.3), on the hub."""
_ALL = 1000

_TYPED_RAG = Options(
    type_classifier=NF_CATS,
    type_threshold=0,
    reply_to_remarks=False,
    sub_queries="paraphrases",
    debate_gate=False,
    sift=False,
    answer_prompt="plain",
    reason=EACH_ANSWERED,
    instruction=EACH_ANSWERED,
    debate=EACH_ANSWERED,
    comparison_search="items",
    experience_search="keywords",
    rerank_everywhere=False,
    rerank_candidates=5,  # K passages a query, of which the reranker keeps K (figure 2)
    score_cutoff=0,
    ungrounded=True,
)
_COVERAGE = Options(
    top_k=10,
    answer_passages=10,
    answer_words=300,
    passage_words=1000,  # whole chunks
    max_core_sub_questions=_ALL,
    types_per_call=1,
    coverage_rerank="judge",
    rerank_candidates=_ALL,
    score_cutoff=0,
    ungrounded=True,
    max_lm_calls=_ALL,
)
_USUAL = Options(sift=False, score_cutoff=0, ungrounded=True)
"""Of systems whose published values are the defaults: only what is typedrag's own is switched off."""
_PUBLISHED: Mapping[str, Options] = {
    **dict.fromkeys(("typed_rag", "rag", "direct_lm"), _TYPED_RAG),
    **dict.fromkeys(
        ("coverage_definition", "coverage_sub_questions", "coverage_retrieval", "coverage_end_to_end"), _COVERAGE
    ),
    **dict.fromkeys(("preqrag", "hanrag", "rag_fusion", "ircot", "adaptive_rag"), _USUAL),
    # the pool of WikiPassageQA; that of WikiAsp has 270
    "richrag": _USUAL.model_copy(
        update={"answer_passages": 10, "richrag": RichRAGOptions(passages_per_aspect=50, pool_limit=290)}
    ),
}
_RERANKERS = {
    "typed_rag": "cross-encoder:BAAI/bge-reranker-large",
    "preqrag": "cross-encoder:BAAI/bge-reranker-v2-m3",
}


def published_options(program: str) -> Options:
    """The options of a program as published; those of `rag` and `direct_lm` are Typed-RAG's baselines.

    Example:
        >>> published_options("typed_rag").type_classifier, published_options("coverage_retrieval").top_k
        ('hub:Lurunchik/nf-cats', 10)
    """
    if program not in _PUBLISHED:
        raise InputError(
            f"program '{program}' is of no paper that typedrag follows, so nothing of it is published",
            "Leave out --as-published, or set its options by -o",
        )
    return _PUBLISHED[program]


def published_reranker(program: str) -> str:
    """The spec of the reranker that a program has as published; `none` if it has none."""
    return _RERANKERS.get(program, "none")
