"""What can be set on a program."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

_CLOSED = ConfigDict(extra="forbid", frozen=True)


class SubQueryOptions(BaseModel):
    """How one question type's sub-queries are searched with and combined."""

    model_config = _CLOSED

    combine: Literal["aggregate", "pool"]
    """`aggregate`: answer each sub-query, then aggregate or mediate the answers (Typed-RAG, figure
    2d). `pool`: pool and rerank the passages of all sub-queries, then answer once (sub-question
    coverage, section 5, retrieval augmentation)."""
    search: Literal["sub-query", "joined"]
    """What is sent to the retriever: the sub-query alone, or joined to the question, which keeps it
    from drifting off the topic (RichRAG, section 3.3)."""


_POOL_JOINED = SubQueryOptions(combine="pool", search="joined")
_PUBLISHED = SubQueryOptions(combine="aggregate", search="sub-query")


class Options(BaseModel):
    """The options of every program; each uses those that concern it."""

    model_config = _CLOSED

    top_k: PositiveInt = 5
    """Passages retrieved per query (Typed-RAG, appendix B.2: 5)."""
    rerank_candidates: PositiveInt = 20
    """Passages retrieved per query where a reranker then chooses among them."""
    score_cutoff: float = Field(default=0.4, ge=0, le=1)
    """Passages whose retrieval score is below this share of the best one's for the same query are
    left out, since a small LM writes of whatever it is given; 0 keeps all, and a reranker sees all.
    Of BM25's first five for 300 ANTIQUE questions, 0.4 leaves out 34 of 1,500: 3 % of them are
    labelled good answers, of the others 24 %."""
    answer_passages: PositiveInt = 5
    """Passages that an answer is written from, at most."""
    passage_words: PositiveInt = 200
    """Words of a passage that an LM gets to see."""
    max_sub_queries: PositiveInt = 5
    """Sub-queries that are used, at most; decomposition gives 2 to 5."""
    reason: SubQueryOptions = _POOL_JOINED
    """Of reason questions."""
    instruction: SubQueryOptions = _POOL_JOINED
    """Of instruction questions."""
    debate: SubQueryOptions = _PUBLISHED
    """Of debate questions."""
    max_core_sub_questions: PositiveInt = 8
    """Core sub-questions that are used, at most; of about 20 sub-questions."""
    coverage_rerank: Literal["fusion", "judge"] = "fusion"
    """What ranks the pool of coverage-retrieval: the ranks that passages have for the core sub-questions,
    or the LM, which says of each passage what it covers."""
    coverage_rounds: NonNegativeInt = 0
    """How often typed_rag looks for core sub-questions that its answer leaves open, retrieves for
    those alone and revises the answer."""
    experience_search: Literal["keywords", "joined"] = "joined"
    """What is sent to the retriever for an experience question: the keywords (Typed-RAG, section
    3.3), or the question and the keywords, since a keyword such as "tips" leads anywhere."""
    rerank_everywhere: bool = True
    """Whether a reranker is also used where the paper's figure 2 draws none: evidence-based
    questions and single sub-queries."""
    type_classifier: Literal["linear", "lm"] = "linear"
    """Who names a question's type: the linear model that is shipped, or the LM."""
    threads: PositiveInt = 8
    """Sub-queries of one question that are answered at once."""
    max_lm_calls: PositiveInt = 16
    """LM calls for one question, retries counted in. Where they do not suffice for all sub-queries,
    fewer are used."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be parsed is asked for again."""
    max_question_chars: PositiveInt = Field(default=4000)
    """Length of a question above which it is refused."""

    @classmethod
    def as_published(cls) -> Options:
        """Typed-RAG as its paper draws it."""
        return cls(
            reason=_PUBLISHED,
            instruction=_PUBLISHED,
            debate=_PUBLISHED,
            experience_search="keywords",
            rerank_everywhere=False,
            score_cutoff=0,
        )
