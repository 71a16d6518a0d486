"""What can be set on a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from typedrag.knobs import Knob
from typedrag.question_types import QuestionType

_CLOSED = ConfigDict(extra="forbid", frozen=True)


class SubQueryOptions(BaseModel):
    """How one question type's sub-queries are searched with and combined."""

    model_config = _CLOSED

    combine: Annotated[Literal["aggregate", "pool"], Knob()]
    """`aggregate`: answer each sub-query, then aggregate or mediate the answers (Typed-RAG, figure
    2d). `pool`: pool and rerank the passages of all sub-queries, then answer once (sub-question
    coverage, section 5, retrieval augmentation)."""
    search: Annotated[Literal["sub-query", "joined"], Knob()]
    """What is sent to the retriever: the sub-query alone, or joined to the question, which keeps it
    from drifting off the topic (RichRAG, section 3.3)."""


_POOL_JOINED = SubQueryOptions(combine="pool", search="joined")
_PUBLISHED = SubQueryOptions(combine="aggregate", search="sub-query")

PER_TYPE = ("top_k", "rerank_candidates", "score_cutoff", "answer_passages", "passage_words", "max_sub_queries")
"""Options that a question type may have a value of its own for."""


class Options(BaseModel):
    """The options of every program; each uses those that concern it."""

    model_config = _CLOSED

    top_k: Annotated[PositiveInt, Knob(1, 20)] = 5
    """Passages retrieved per query (Typed-RAG, appendix B.2: 5)."""
    rerank_candidates: Annotated[PositiveInt, Knob(5, 50, step=5)] = 20
    """Passages retrieved per query where a reranker then chooses among them."""
    score_cutoff: Annotated[float, Field(ge=0, le=1), Knob(0.0, 0.8, step=0.1)] = 0.4
    """Passages whose retrieval score is below this share of the best one's for the same query are
    left out, since a small LM writes of whatever it is given; 0 keeps all, and a reranker sees all.
    Of BM25's first five for 300 ANTIQUE questions, 0.4 leaves out 34 of 1,500: 3 % of them are
    labelled good answers, of the others 24 %."""
    answer_passages: Annotated[PositiveInt, Knob(1, 14)] = 5
    """Passages that an answer is written from, at most."""
    passage_words: Annotated[PositiveInt, Knob(50, 300, step=50)] = 200
    """Words of a passage that an LM gets to see."""
    max_sub_queries: Annotated[PositiveInt, Knob(1, 5)] = 5
    """Sub-queries that are used, at most; decomposition gives 2 to 5."""
    reason: SubQueryOptions = _POOL_JOINED
    """Of reason questions."""
    instruction: SubQueryOptions = _POOL_JOINED
    """Of instruction questions."""
    debate: SubQueryOptions = _PUBLISHED
    """Of debate questions."""
    experience_search: Annotated[Literal["keywords", "joined"], Knob()] = "joined"
    """What is sent to the retriever for an experience question: the keywords (Typed-RAG, section
    3.3), or the question and the keywords, since a keyword such as "tips" leads anywhere."""
    rerank_everywhere: Annotated[bool, Knob()] = True
    """Whether a reranker is also used where the paper's figure 2 draws none: evidence-based
    questions and single sub-queries."""
    type_classifier: Annotated[Literal["linear", "lm"], Knob()] = "linear"
    """Who names a question's type: the linear model that is shipped, or the LM."""
    by_type: Mapping[QuestionType, Mapping[str, int | float]] = Field(default_factory=dict)
    """Options of `PER_TYPE` that differ for questions of a type, such as `debate: {top_k: 3}`. Programs
    that do not tell types apart have no use for it."""
    threads: PositiveInt = 8
    """Sub-queries of one question that are answered at once."""
    max_lm_calls: PositiveInt = 16
    """LM calls for one question, retries counted in. Where they do not suffice for all sub-queries,
    fewer are used."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be parsed is asked for again."""
    max_question_chars: PositiveInt = Field(default=4000)
    """Length of a question above which it is refused."""

    def of(self, question_type: QuestionType) -> Self:
        """The options for questions of a type.

        Example:
            >>> options = Options(top_k=5, by_type={"debate": {"top_k": 3}})
            >>> options.of(QuestionType.DEBATE).top_k, options.of(QuestionType.REASON).top_k
            (3, 5)
        """
        own = self.by_type.get(question_type)
        return type(self).model_validate({**self.model_dump(exclude={"by_type"}), **own}) if own else self

    @model_validator(mode="after")
    def _options_of_types_fit(self) -> Self:
        for question_type, own in self.by_type.items():
            if unknown := own.keys() - set(PER_TYPE):
                raise ValueError(f"{question_type} has no {min(unknown)} of its own; it may have {', '.join(PER_TYPE)}")
            self.of(question_type)
        return self

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
