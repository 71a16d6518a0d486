"""What can be set on a program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from typedrag.errors import InputError
from typedrag.lms.lm import check_spec
from typedrag.programs.knobs import Knob
from typedrag.programs.makes import make_named
from typedrag.question_types import QuestionType, Route
from typedrag.retrieval.gate.makes import gate_named

_CLOSED = ConfigDict(extra="forbid", frozen=True)


def _that_passes(check: Callable[[str], object], text: str) -> str:
    """The text, or what the check says against it as pydantic's error."""
    try:
        check(text)
    except InputError as error:
        raise PydanticCustomError("unusable", "{said}", {"said": str(error)}) from None
    return text


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


class DecomposeOptions(BaseModel):
    """Which question types are decomposed; questions of the others are answered the evidence-based way."""

    model_config = _CLOSED

    comparison: Annotated[bool, Knob()] = True
    """By what they compare."""
    experience: Annotated[bool, Knob()] = True
    """Into keywords."""
    reason: Annotated[bool, Knob()] = True
    """Into sub-queries, one a cause."""
    instruction: Annotated[bool, Knob()] = True
    """Into sub-queries, one a stage."""
    debate: Annotated[bool, Knob()] = True
    """Into a sub-query for each side."""

    def has(self, question_type: QuestionType) -> bool:
        """Whether questions of a type are answered in their own way.

        Example:
            >>> DecomposeOptions(debate=False).has(QuestionType.DEBATE)
            False
        """
        return bool(getattr(self, question_type, True))


class RichRAGOptions(BaseModel):
    """How wide RichRAG searches."""

    model_config = _CLOSED

    max_aspects: Annotated[PositiveInt, Knob(2, 7)] = 7
    """Sub-aspects that are used, at most; the explorer names 2 to 7 (RichRAG, figure 10)."""
    passages_per_aspect: Annotated[PositiveInt, Knob(5, 50, step=5)] = 20
    """Passages retrieved for each sub-aspect (RichRAG, appendix B: 50)."""
    pool_limit: Annotated[PositiveInt, Knob(20, 100, step=10)] = 60
    """Passages that the ranker chooses from, at most (RichRAG, appendix B: 270 and 290)."""
    repeat: bool = False
    """Whether a list ranker may name a passage more than once (RichRAG, appendix F)."""


class PreQRAGOptions(BaseModel):
    """What only PreQRAG does."""

    model_config = _CLOSED

    classifier: Annotated[Literal["rule", "lm", "combined"], Knob()] = "rule"
    """Who says whether a question needs one document or several: a rule over its words, the LM, or the
    rule first and the LM where it sees no sign of several (section 2.1: the rule misses the fewest)."""
    prompt_style: Annotated[Literal["A", "B", "C", "D"], Knob()] = "B"
    """How the answer is asked for: directly, of an expert, in one to three sentences, or after some
    reasoning (appendix B.3: B does best)."""
    generation: Annotated[int, Field(ge=1, le=3), Knob(1, 3)] = 1
    """How a multi-document question is answered: 1 from the passages of both sub-questions, 2 from the
    answers to them, 3 by these answers one after the other (appendix B.1: 1 does best)."""
    passages: Annotated[PositiveInt, Knob(1, 10)] = 3
    """Passages that an answer is written from, at most (section 2.5: 3)."""


_POOL_JOINED = SubQueryOptions(combine="pool", search="joined")
_PUBLISHED = SubQueryOptions(combine="aggregate", search="sub-query")

PER_TYPE = (
    "top_k",
    "rerank_candidates",
    "score_cutoff",
    "relevance_threshold",
    "answer_passages",
    "passage_words",
    "max_sub_queries",
)
"""Options that a question type may have a value of its own for."""


class HANRAGOptions(BaseModel):
    """How HANRAG works; leaving out a part of it is an ablation of its table 6."""

    model_config = _CLOSED

    router: Literal["lm", "rule"] | Route = "lm"
    """Who says which way a question goes: the revelator, or a rule on how it is worded. A route sends
    all questions that way (HANRAG-Oracle, appendix D, where a dataset's questions have one)."""
    candidates: Annotated[PositiveInt, Knob(3, 20)] = 10
    """Passages retrieved per query, whose relevance is then judged (algorithm 1: 10)."""
    relevant_passages: Annotated[PositiveInt, Knob(1, 10)] = 3
    """Relevant passages that an answer is written from, at most (algorithm 1: 3)."""
    discriminate_relevance: Annotated[bool, Knob()] = True
    """Whether passages are judged at all; else the best are taken as they were retrieved."""
    refine: Annotated[bool, Knob()] = True
    """Whether a complex question's next query is asked for; else each is the question itself."""
    discriminate_ending: Annotated[bool, Knob()] = True
    """Whether a complex question ends once it is answered; else only at `max_steps`."""
    max_steps: Annotated[PositiveInt, Knob(1, 8)] = 5
    """Cycles of retrieval and generation for a complex question, at most (table 6, without the ending
    discriminator: 4.56 on average, so 5 at most)."""
    max_lm_calls: PositiveInt = 120
    """LM calls for one question, in the place of the program's: each passage takes one."""
    revelator_lm: str = ""
    """Spec of the LM that is the revelator, such as a fine-tuned one; by default that which answers."""

    @field_validator("revelator_lm")
    @classmethod
    def _is_a_spec(cls, text: str) -> str:
        return _that_passes(check_spec, text) if text else text


class IRCoTOptions(BaseModel):
    """How retrieval and reasoning take turns in `ircot`, and in `adaptive_rag` for complex questions."""

    model_config = _CLOSED

    max_steps: Annotated[PositiveInt, Knob(1, 8)] = 8
    """Sentences of reasoning, each after a retrieval of its own, at most (Trivedi et al. 2023: 8)."""
    max_passages: Annotated[PositiveInt, Knob(3, 15)] = 15
    """Passages that are collected on the way, at most (Trivedi et al. 2023: 15)."""


class Options(BaseModel):
    """The options of all programs; each takes those that it says it reads, see `Program.reads`."""

    model_config = _CLOSED

    top_k: Annotated[PositiveInt, Knob(1, 20)] = 5
    """Passages retrieved per query (Typed-RAG, appendix B.2: 5)."""
    rerank_candidates: Annotated[PositiveInt, Knob(5, 100, step=5)] = 20
    """Passages retrieved per query where a reranker then chooses among them."""
    score_cutoff: Annotated[float, Field(ge=0, le=1), Knob(0.0, 0.8, step=0.1)] = 0.4
    """Passages whose retrieval score is below this share of the best one's for the same query are
    left out, since a small LM writes of whatever it is given; 0 keeps all, and a reranker sees all.
    Of BM25's first five for 300 ANTIQUE questions, 0.4 leaves out 34 of 1,500: 3 % of them are
    labelled good answers, of the others 24 %."""
    relevance: Annotated[str, Knob(choices=("none", "score", "lm", "cascade"))] = "none"
    """What stands between retrieval and answer: passages that do not pass are not shown to the LM. `none`: all pass.
    `score`: by a small model that is shipped, over how near question and passage are (typedrag models fetch
    all-minilm-l6-v2); it reads English, and lets all pass for other questions. `cross-encoder:NAME`: by a model of
    the Hugging Face hub, by default BAAI/bge-reranker-large. `lm`: by the LM, all passages in one call.
    `cascade:FIRST`: the LM only where FIRST, `score` by default, is unsure."""
    relevance_threshold: Annotated[float, Field(ge=0, le=1), Knob(0.05, 0.5, step=0.05)] = 0.2
    """Passages of which it is less probable that they are of use do not pass. `cascade` asks the LM from here to
    1 - relevance_threshold. At 0.2 `score` keeps 95 % of the passages of BM25's first five for 75 questions of
    ANTIQUE's test split that are labelled good, and drops 65 % of the others."""
    answer_passages: Annotated[PositiveInt, Knob(1, 14)] = 5
    """Passages that an answer is written from, at most."""
    passage_words: Annotated[PositiveInt, Knob(50, 300, step=50)] = 200
    """Words of a passage that an LM gets to see."""
    answer_length: Literal["paragraphs", "phrase"] = "paragraphs"
    """How long answers are: paragraphs, or the answer alone as sets with short gold answers have it
    (HANRAG, table 14), whatever PreQRAG's prompt style. What is to cover several sides writes
    paragraphs: Typed-RAG's strategies but the evidence-based one, `coverage_*` and `richrag`."""
    decompose: DecomposeOptions = DecomposeOptions()
    """Which question types `typed_rag` answers in their own way."""
    max_sub_queries: Annotated[PositiveInt, Knob(1, 5)] = 5
    """Sub-queries that are used, at most; decomposition gives 2 to 5."""
    sift: bool = True
    """Whether sub-queries are dropped that repeat another, have left the question's topic or are no query."""
    reason: SubQueryOptions = _POOL_JOINED
    """Of reason questions."""
    instruction: SubQueryOptions = _POOL_JOINED
    """Of instruction questions."""
    debate: SubQueryOptions = _PUBLISHED
    """Of debate questions."""
    max_core_sub_questions: Annotated[PositiveInt, Knob(2, 10)] = 8
    """Core sub-questions that are used, at most; of about 20 sub-questions."""
    coverage_rerank: Annotated[Literal["fusion", "judge"], Knob()] = "fusion"
    """What ranks the pool of coverage_retrieval: the ranks that passages have for the core sub-questions,
    or the LM, which says of each passage what it covers."""
    coverage_rounds: Annotated[NonNegativeInt, Knob(0, 2)] = 0
    """How often typed_rag looks for core sub-questions that its answer leaves open, retrieves for
    those alone and revises the answer."""
    comparison_search: Annotated[Literal["items", "joined"], Knob()] = "joined"
    """What is sent to the retriever for a comparison: each item by itself (Typed-RAG, section 3.2), or the
    question, and the question with each item, since an item's name alone may mean much else."""
    experience_search: Annotated[Literal["keywords", "joined"], Knob()] = "joined"
    """What is sent to the retriever for an experience question: the keywords (Typed-RAG, section
    3.3), or the question and the keywords, since a keyword such as "tips" leads anywhere."""
    rerank_everywhere: Annotated[bool, Knob()] = True
    """Whether a reranker is also used where the paper's figure 2 draws none: evidence-based
    questions and single sub-queries."""
    type_classifier: Annotated[str, Knob(choices=("linear", "lm", "cascade"))] = "linear"
    """Who names a question's type. `linear`, `embedding` or both, `linear+embedding`: small models that
    are shipped, over n-grams and over MiniLM's embeddings (typedrag models fetch all-minilm-l6-v2).
    `hub:NAME`: a classifier of the Hugging Face hub, such as Lurunchik/nf-cats. `lm`: the LM.
    `cascade:FIRST,SECOND`: the second only where
    the first is unsure; `cascade` is `cascade:linear,lm`. The models that are shipped read English: questions
    in other languages are typed by the LM, or by a cascade's second."""
    type_threshold: float = Field(default=0.5, ge=0, le=1)
    """A cascade asks its second type classifier where the first one's probability is below this; at
    0.5 that is where it is more likely wrong than right."""
    preqrag: PreQRAGOptions = PreQRAGOptions()
    """Of `preqrag`."""
    hanrag: HANRAGOptions = HANRAGOptions()
    """Of `hanrag`."""
    ircot: IRCoTOptions = IRCoTOptions()
    """Of `ircot` and `adaptive_rag`."""
    richrag: RichRAGOptions = RichRAGOptions()
    """Of `richrag`."""
    by_type: Mapping[QuestionType, Mapping[str, int | float]] = Field(default_factory=dict)
    """Options of `PER_TYPE` that differ for questions of a type, such as `debate: {top_k: 3}`."""
    ungrounded: bool = False
    """Whether the LM answers from what it knows where the collection does not say. The answer says so in `answered`
    and cites nothing. Else the answer is that the collection does not say."""
    threads: PositiveInt = 8
    """Sub-queries of one question that are answered at once."""
    max_lm_calls: PositiveInt = 16
    """LM calls for one question, retries counted in. Where they do not suffice for all sub-queries,
    fewer are used."""
    retries: NonNegativeInt = 2
    """How often a reply that cannot be parsed is asked for again."""
    max_question_chars: PositiveInt = Field(default=4000)
    """Length of a question above which it is refused."""

    @field_validator("type_classifier")
    @classmethod
    def _known_make(cls, text: str) -> str:
        return _that_passes(make_named, text)

    @field_validator("relevance")
    @classmethod
    def _known_gate(cls, text: str) -> str:
        return _that_passes(gate_named, text)

    def of(self, question_type: QuestionType) -> Self:
        """The options for questions of a type.

        Example:
            >>> options = Options(top_k=5, by_type={"debate": {"top_k": 3}})
            >>> options.of(QuestionType.DEBATE).top_k, options.of(QuestionType.REASON).top_k
            (3, 5)
        """
        own = self.by_type.get(question_type)
        return type(self).model_validate({**self.model_dump(exclude={"by_type"}), **own}) if own else self

    def with_given(self, given: Mapping[str, Any]) -> Self:
        """These, with those in their place that are given; a mapping changes part of a group.

        Raises:
            InputError: If there is no such option, or a value does not fit.

        Example:
            >>> Options().with_given({"top_k": "3", "reason": {"search": "sub-query"}}).reason
            SubQueryOptions(combine='pool', search='sub-query')
        """
        try:
            made = type(self).model_validate(_merged(self.model_dump(), given))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"] if "[" not in str(part))  # a union's tags are none
            if first["type"] == "extra_forbidden":
                known = ", ".join(_leaves(type(self)().model_dump()))
                raise InputError(f"there is no option '{name}'", f"Options: {known}") from None
            if not name:  # several options together
                raise InputError(first["msg"].removeprefix("Value error, "), "See: typedrag ask --help") from None
            said = " or ".join(dict.fromkeys(e["msg"] for e in error.errors() if e["input"] == first["input"]))
            raise InputError(f"option {name} cannot be '{first['input']}'", said) from None
        return self.model_copy(update={name: getattr(made, name) for name in given})

    def as_defaults(self, names: Collection[str] | None = None) -> Self:
        """The same, or those of some names alone, none of which counts as set by the user: no program refuses them."""
        kept = {name: value for name, value in self if names is None or name in names}
        return type(self).model_construct(_fields_set=set(), **kept)

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
            comparison_search="items",
            experience_search="keywords",
            rerank_everywhere=False,
            sift=False,
            score_cutoff=0,
            ungrounded=True,
        ).as_defaults()


def _merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    groups = {name for name, value in given.items() if isinstance(value, Mapping) and isinstance(base.get(name), dict)}
    return {**base, **given, **{name: _merged(base[name], given[name]) for name in groups}}


def _leaves(values: Mapping[str, Any]) -> list[str]:
    """
    Example:
        >>> _leaves({"top_k": 5, "reason": {"combine": "pool"}})
        ['top_k', 'reason.combine']
    """
    return [
        f"{name}.{inner}" if inner else name
        for name, value in values.items()
        for inner in (value if isinstance(value, dict) and value else [""])
    ]
