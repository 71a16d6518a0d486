"""The options of programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
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

from typedrag.core.errors import InputError, names_hint
from typedrag.core.parameters import Parameter, Published
from typedrag.core.question_types import TYPE_CLASSIFIERS, DocumentScope, QuestionType, Route, SubQuestionType
from typedrag.core.registry import SpecGrammar
from typedrag.lms.specs import check_spec
from typedrag.retrieval.index.lucene import STANDARD
from typedrag.retrieval.relevance_filter import RELEVANCE_FILTERS
from typedrag.retrieval.search.bm25 import BM25Setting
from typedrag.sub_questions.decomposition import SUB_QUESTIONS_PER_CALL

COMPLEXITY_CLASSIFIERS = SpecGrammar("classifier of complexity", "lm", "hub:NAME")
_CLOSED = ConfigDict(extra="forbid", frozen=True)


def _that_passes(check: Callable[[str], object], text: str) -> str:
    """The text if the check passes; otherwise the check's message as pydantic's error."""
    try:
        check(text)
    except InputError as error:
        raise PydanticCustomError("unusable", "{said}", {"said": str(error)}) from None
    return text


class SubQueryOptions(BaseModel):
    """The ways to search with one question type's sub-queries and to combine what they find."""

    model_config = _CLOSED

    combine: Annotated[Literal["aggregate", "pool"], Parameter()]
    """`aggregate`: answer each sub-query, then aggregate or mediate the answers (Typed-RAG, figure
    2d). `pool`: pool and rerank the passages of all sub-queries, then answer once (sub-question
    coverage, section 5, retrieval augmentation)."""
    search: Annotated[Literal["sub-query", "joined"], Parameter()]
    """What is sent to the retriever: the sub-query alone, or joined to the question, which keeps it
    from drifting off the topic (RichRAG, section 3.3)."""


class DecomposeOptions(BaseModel):
    """The question types that are decomposed; questions of other types are answered the evidence-based way."""

    model_config = _CLOSED

    comparison: Annotated[bool, Parameter()] = True
    """Into the items that they compare."""
    experience: Annotated[bool, Parameter()] = True
    """Into keywords."""
    reason: Annotated[bool, Parameter()] = True
    """Into sub-queries, one a cause."""
    instruction: Annotated[bool, Parameter()] = True
    """Into sub-queries, one a stage."""
    debate: Annotated[bool, Parameter()] = True
    """Into a sub-query for each side."""

    def has(self, question_type: QuestionType) -> bool:
        """True if questions of a type are answered by their own strategy.

        Example:
            >>> DecomposeOptions(debate=False).has(QuestionType.DEBATE)
            False
        """
        return bool(getattr(self, question_type, True))


class CoverageWeights(BaseModel):
    """The worth of covering all sub-questions of a type, to a program (sub-question coverage, section 4)."""

    model_config = _CLOSED

    core: Annotated[float, Field(ge=-1, le=1), Parameter(0.0, 1.0, step=0.25)] = 1.0
    """Of core sub-questions."""
    background: Annotated[float, Field(ge=-1, le=1), Parameter(-1.0, 1.0, step=0.25)] = 0.0
    """Of background sub-questions."""
    follow_up: Annotated[float, Field(ge=-1, le=1), Parameter(-1.0, 1.0, step=0.25)] = 0.0
    """Of follow-up sub-questions."""

    def by_type(self) -> dict[SubQuestionType, float]:
        """The weight of each type.

        Example:
            >>> CoverageWeights(follow_up=-0.5).by_type()[SubQuestionType.FOLLOW_UP]
            -0.5
        """
        return {type_: getattr(self, type_.name.lower()) for type_ in SubQuestionType}


LMSpec = Annotated[str, AfterValidator(lambda text: _that_passes(check_spec, text) if text else text)]
"""The spec of a role's own LM; empty for the LM that answers."""


class RichRAGOptions(BaseModel):
    """RichRAG's options."""

    model_config = _CLOSED

    aspects: Literal["predicted", "golden"] = "predicted"
    """Whose sub-aspects are used: those that the LM names, or in an evaluation the dataset's (RichRAG, section 4.3)."""
    search: Annotated[Literal["aspects", "question"], Parameter()] = "aspects"
    """What is searched for: the question joined with each sub-aspect, or the question alone, which a ranker then
    ranks without sub-aspects (RichRAG, section 4.4: w/o SA)."""
    merge: Annotated[Literal["turns", "fusion"], Parameter()] = "turns"
    """The order of what was found for several sub-aspects, before a reranker: the first passages of all in turn, or
    by reciprocal rank fusion, as in the paper's RAG-Fusion (RichRAG, section 4.2)."""
    tell_aspects: Annotated[bool, Parameter()] = False
    """Whether the LM that answers reads the sub-aspects, as golden ones in the authors' code."""
    max_aspects: Annotated[PositiveInt, Parameter(2, 7)] = 7
    """Predicted sub-aspects that are used, at most; the explorer names 2 to 7 (RichRAG, figure 10)."""
    passages_per_aspect: Annotated[PositiveInt, Parameter(5, 50, step=5)] = 20
    """Passages retrieved for each sub-aspect, or for the question alone (RichRAG, appendix B: 50)."""
    pool_limit: Annotated[PositiveInt, Parameter(20, 100, step=10)] = 60
    """Passages that the ranker chooses from, at most (RichRAG, appendix B: 270 and 290)."""
    repeat: bool = False
    """Whether a list ranker may name a passage more than once (RichRAG, appendix F)."""
    explorer_lm: LMSpec = ""
    """Spec of the LM that names sub-aspects, such as a fine-tuned one; by default the LM that answers."""


class PreQRAGOptions(BaseModel):
    """PreQRAG's options."""

    model_config = _CLOSED

    classifier: Annotated[
        Literal["rule", "lm", "either", "both", "oracle"] | DocumentScope,
        Parameter(choices=("rule", "lm", "either", "both")),
    ] = "rule"
    """What decides whether a question needs one document or several: a rule over its words, or the LM; `either`:
    several if one of them says so, `both`: if they agree on it (section 2.1: the rule misses the fewest). The name of
    a scope gives it to all questions; `oracle` gives each the scope that is its subset in an evaluation's dataset."""
    prompt_style: Annotated[Literal["A", "B", "C", "D"], Parameter()] = "B"
    """The prompt of the answer: direct (A), to an expert (B), for one to three sentences (C), or with some
    reasoning first (D) (appendix B.3: B does best)."""
    generation: Annotated[int, Field(ge=1, le=3), Parameter(1, 3)] = 1
    """How a multi-document question is answered: 1 from the passages of both sub-questions, 2 from their
    answers, 3 by joining these answers (appendix B.1: 1 does best)."""
    passages: Annotated[PositiveInt, Parameter(1, 10)] = 3
    """Passages that an answer is written from, at most (section 2.5: 3)."""


_POOL_JOINED = SubQueryOptions(combine="pool", search="joined")
EACH_ANSWERED = SubQueryOptions(combine="aggregate", search="sub-query")
"""As Typed-RAG is published: each sub-query is searched for by itself and answered."""

SIGNATURES: Mapping[str, Any] = {
    "type_classifier": "lm",
    **dict.fromkeys(("reason", "instruction", "debate"), EACH_ANSWERED.model_dump()),
    "coverage_rounds": 1,
}
"""What `modules=signatures` stands for: the options of `typed_rag` by which the LM is asked in each of its modules, the
type classifier, keyword extractor, sub-query generator, aggregator, debate mediator and coverage judge."""

PER_TYPE = (
    "top_k",
    "rerank_candidates",
    "score_cutoff",
    "relevance_threshold",
    "answer_passages",
    "passage_words",
    "max_sub_queries",
)
"""Options that may differ by question type."""
SUB_QUERY_TYPES = (QuestionType.REASON, QuestionType.INSTRUCTION, QuestionType.DEBATE)
"""The types that have `max_sub_queries`."""


class HANRAGOptions(BaseModel):
    """HANRAG's options; switching off a part of it is an ablation of its table 6."""

    model_config = _CLOSED

    router: Literal["lm", "rule"] | Route = "lm"
    """What chooses a question's route: the revelator, or a rule on its wording. The name of a route sends
    all questions that way (HANRAG-Oracle, appendix D, if a dataset's questions have one)."""
    candidates: Annotated[PositiveInt, Parameter(3, 20)] = 10
    """Passages retrieved per query, whose relevance is then judged (algorithm 1: 10)."""
    relevant_passages: Annotated[PositiveInt, Parameter(1, 10)] = 3
    """Relevant passages that an answer is written from, at most (algorithm 1: 3)."""
    discriminate_relevance: Annotated[bool, Parameter()] = True
    """Whether passages are judged; otherwise the best are used as retrieved."""
    refine: Annotated[bool, Parameter()] = True
    """Whether the LM writes the next query of a complex question; otherwise it is always the question itself."""
    discriminate_ending: Annotated[bool, Parameter()] = True
    """Whether a complex question ends once it is answered; otherwise it ends at `max_steps`."""
    end_before_first_step: bool = False
    """Whether the ending discriminator is also asked before the first step (algorithm 2, line 13), when nothing is
    solved yet. A question that it ends there is answered without passages."""
    max_steps: Annotated[PositiveInt, Parameter(1, 8)] = 5
    """Cycles of retrieval and generation for a complex question, at most (table 6, without the ending
    discriminator: 4.56 on average, so 5 at most)."""
    max_lm_calls: PositiveInt = 120
    """LM calls for one question, instead of the general `max_lm_calls`: each passage takes one."""
    revelator_lm: LMSpec = ""
    """Spec of the revelator's LM, such as a fine-tuned one; by default the LM that answers."""


class IRCoTOptions(BaseModel):
    """The options of `ircot`, and of `adaptive_rag` for complex questions."""

    model_config = _CLOSED

    max_steps: Annotated[PositiveInt, Parameter(1, 8)] = 8
    """Sentences of reasoning, at most, each with its own retrieval (Trivedi et al. 2023: 8)."""
    max_passages: Annotated[PositiveInt, Parameter(3, 15)] = 15
    """Passages collected in all steps, at most (Trivedi et al. 2023: 15)."""


class AdaptiveRAGOptions(BaseModel):
    """The options of `adaptive_rag`."""

    model_config = _CLOSED

    classifier: str = "lm"
    """What tells how much retrieval a question takes: the LM, or `hub:NAME`, a T5 of the Hugging Face hub or a folder
    that was trained to write A, B or C, as the authors' code trains it (Jeong et al. 2024)."""

    @field_validator("classifier")
    @classmethod
    def _is_complexity_classifier(cls, text: str) -> str:
        return _that_passes(COMPLEXITY_CLASSIFIERS.parse, text)


class Options(BaseModel):
    """The options of all programs; each program reads some of them, see `Program.reads`.

    Example:
        >>> options = Options(modules="signatures", coverage_rounds=2)
        >>> options.type_classifier, options.coverage_rounds
        ('lm', 2)
    """

    model_config = _CLOSED

    top_k: Annotated[PositiveInt, Parameter(1, 20)] = 5
    """Passages retrieved per query (Typed-RAG, appendix B.2: 5)."""
    rerank_candidates: Annotated[PositiveInt, Parameter(5, 100, step=5)] = 20
    """Passages retrieved per query if a reranker then chooses among them."""
    score_cutoff: Annotated[float, Field(ge=0, le=1), Parameter(0.0, 0.8, step=0.1)] = 0.4
    """Passages whose retrieval score is below this share of the best score for the same query are
    left out, since a small LM uses whatever it is shown; 0 keeps all, and a reranker sees all.
    Of BM25's first five for 300 ANTIQUE questions, 0.4 leaves out 34 of 1,500: 3 % of them are
    labelled good answers, of the others 24 %."""
    relevance: Annotated[str, Parameter(choices=("none", "score", "set", "lm", "cascade"))] = "none"
    """The gate between retrieval and answer: passages that do not pass are not shown to the LM. `none`: all pass.
    `score`: by a small shipped model over the similarity of question and passage (typedrag models fetch
    all-minilm-l6-v2); it reads English, and lets all pass for other questions. `set`: by the same model, all passages
    if one of them passes, else none. `cross-encoder:NAME`: by a model of
    the Hugging Face hub, by default BAAI/bge-reranker-large. `lm`: by the LM, all passages in one call.
    `cascade:FIRST`: the LM only where FIRST, `score` by default, is unsure."""
    relevance_threshold: Annotated[float, Field(ge=0, le=1), Parameter(0.05, 0.5, step=0.05)] = 0.2
    """The least probability of being relevant with which a passage passes. `cascade` asks the LM between this and
    1 - relevance_threshold, and at least from 0.4 to 0.6. At 0.2 `score` keeps 95 % of the passages of BM25's first
    five for 75 questions of ANTIQUE's test split that are labelled good, and drops 65 % of the others."""
    answer_passages: Annotated[PositiveInt, Parameter(1, 14)] = 5
    """Passages that an answer is written from, at most."""
    answer_support: Annotated[float, Field(ge=0, le=1), Parameter(0.0, 0.6, step=0.1)] = 0.0
    """The least share of its words that an answer has from its passages, of those that its sentences add to the
    question, such as 0.4. If it has fewer, the LM is asked once to quote the passages instead, and if the quotes are
    not in them either, they hold no answer. 0 checks nothing, and nothing is checked of phrases, plain answers
    (`answer_prompt`), and answers in another language than their passages."""
    passage_words: Annotated[PositiveInt, Parameter(50, 300, step=50)] = 200
    """Words of a passage that are shown to an LM."""
    answer_length: Literal["paragraphs", "phrase"] = "paragraphs"
    """The length of answers: paragraphs, or only a phrase as in datasets with short gold answers (HANRAG,
    table 14), whatever PreQRAG's prompt style. Answers that cover several sides stay paragraphs: those of
    Typed-RAG's strategies except the evidence-based one, of `coverage_*` and `richrag`."""
    answer_words: PositiveInt | None = None
    """About how many words an answer has, instead of one to three paragraphs (sub-question coverage, section 5: 300).
    Answers to the parts of a question stay short."""
    answer_prompt: Annotated[Literal["cited", "plain"], Parameter()] = "cited"
    """How the LM is asked for an answer: to choose the passages that help, say whether they hold one, and write in the
    way that the question's type asks for; or, as Typed-RAG does (figures 8, 9 and 11), by no more than the passages and
    the question, PreQRAG's in its paper's words and RichRAG's in those of its authors' code. A plain answer cites
    nothing, and nothing says whether the passages hold it. With `plain` comparisons and keywords are asked for, and
    debates mediated, by the paper's prompts, too (figures 10, 12 and 16), and the programs `coverage_*` have those of
    theirs (sub-question coverage, tables 5 and 6)."""
    decompose: DecomposeOptions = DecomposeOptions()
    """The question types that `typed_rag` answers by their own strategies."""
    max_sub_queries: Annotated[PositiveInt, Parameter(1, 5)] = 5
    """Sub-queries that are used, at most; decomposition gives 2 to 5."""
    sift: bool = True
    """Whether sub-queries, or RichRAG's sub-aspects, are dropped that repeat another, have left the question's topic or
    are no query. Otherwise HANRAG also asks a query again, and composes an answer of a single part."""
    sub_queries: Annotated[Literal["parts", "paraphrases"], Parameter()] = "parts"
    """The sub-queries of reason and instruction questions: one for each cause or stage, or the question in other words
    (Typed-RAG, figures 13 and 14)."""
    debate_gate: Annotated[bool, Parameter()] = True
    """Whether the LM that names a debate's sides may say that there are none; the paper takes the classifier's word."""
    reply_to_remarks: bool = True
    """Whether small talk that the collection says nothing on gets a polite reply; otherwise the answer is that the
    collection does not say. All is searched for first."""
    reason: SubQueryOptions = _POOL_JOINED
    """For reason questions."""
    instruction: SubQueryOptions = _POOL_JOINED
    """For instruction questions."""
    debate: SubQueryOptions = EACH_ANSWERED
    """For debate questions."""
    max_core_sub_questions: Annotated[PositiveInt, Parameter(2, 10)] = 8
    """Core sub-questions that are used, at most, out of about 20 sub-questions; the paper uses all. Also the most of
    each other type with a weight."""
    types_per_call: PositiveInt = SUB_QUESTIONS_PER_CALL
    """Sub-questions that one call types, at most (sub-question coverage, table 5: 1)."""
    coverage_rerank: Annotated[Literal["fusion", "judge"], Parameter()] = "fusion"
    """How coverage_retrieval ranks its pool: by fusing the ranks for the sub-questions, or by an LM that
    judges which of them each passage covers."""
    coverage_rounds: Annotated[NonNegativeInt, Parameter(0, 2)] = 0
    """The number of times that typed_rag finds sub-questions its answer leaves open, retrieves for
    them and revises the answer."""
    coverage_weights: CoverageWeights = CoverageWeights()
    """The sub-questions that count: for the passages that coverage_retrieval takes, for when a coverage round of
    typed_rag searches again, and for whether its revision is kept. By default core ones alone."""
    comparison_search: Annotated[Literal["items", "joined"], Parameter()] = "joined"
    """What is sent to the retriever for a comparison: each item by itself (Typed-RAG, section 3.2), or the
    question, and the question joined with each item, since an item's name alone is ambiguous."""
    experience_search: Annotated[Literal["each", "keywords", "joined", "question"], Parameter()] = "joined"
    """What is sent to the retriever for an experience question: each keyword by itself (Typed-RAG, section 3.3 and
    figure 2), all in one query, the question and the keywords, since a keyword such as "tips" matches anything, or the
    question alone (the authors' code). Passages are always reranked by the keywords."""
    rerank_everywhere: Annotated[bool, Parameter()] = True
    """Whether a reranker is also used where the paper's figure 2 has none: for evidence-based
    questions and single sub-queries."""
    type_classifier: Annotated[str, Parameter(choices=("linear", "embedding", "lm"))] = "linear"
    """The type classifier. `linear` and `embedding`: small shipped models over n-grams and over MiniLM's embeddings
    (typedrag models fetch all-minilm-l6-v2), which read English; the LM types questions in other languages.
    `hub:NAME`: a classifier of the Hugging Face hub, such as Lurunchik/nf-cats. `lm`: the LM. `oracle`: the label
    `question_type` of an evaluation's dataset."""
    type_threshold: Annotated[float, Field(ge=0, le=1), Parameter(0.0, 0.8, step=0.1)] = 0.5
    """The probability of a type below which it is unsure: the evidence-based way then answers, and `type_unsure` says
    so. 0 takes every type for sure."""
    preqrag: PreQRAGOptions = PreQRAGOptions()
    """For `preqrag`."""
    hanrag: HANRAGOptions = HANRAGOptions()
    """For `hanrag`."""
    ircot: IRCoTOptions = IRCoTOptions()
    """For `ircot` and `adaptive_rag`."""
    adaptive: AdaptiveRAGOptions = AdaptiveRAGOptions()
    """For `adaptive_rag`."""
    richrag: RichRAGOptions = RichRAGOptions()
    """For `richrag`."""
    by_type: Mapping[QuestionType, Mapping[str, int | float]] = Field(default_factory=dict)
    """Options of `PER_TYPE` that differ for questions of a type, such as `debate: {top_k: 3}`."""
    ungrounded: bool = False
    """Whether the LM answers from its own knowledge if the collection does not say. Such an answer says so in
    `answered` and cites nothing. Otherwise the answer is that the collection does not say."""
    threads: PositiveInt = 8
    """Sub-queries of one question that are answered at once."""
    max_lm_calls: PositiveInt = 16
    """LM calls for one question, retries included. If they do not suffice for all sub-queries, fewer are used."""
    retries: NonNegativeInt = 2
    """The number of times a reply that cannot be parsed is asked for again."""
    max_question_chars: PositiveInt = Field(default=4000)
    """The length of a question above which it is refused."""

    @model_validator(mode="before")
    @classmethod
    def _modules_are_options(cls, values: Any) -> Any:
        return _with_modules(values) if isinstance(values, Mapping) else values

    @field_validator("type_classifier")
    @classmethod
    def _is_type_classifier(cls, text: str) -> str:
        return _that_passes(TYPE_CLASSIFIERS.parse, text)

    @field_validator("relevance")
    @classmethod
    def _is_relevance_filter(cls, text: str) -> str:
        return _that_passes(RELEVANCE_FILTERS.parse, text)

    @property
    def labels(self) -> tuple[str, ...]:
        """The settings by which labels of a dataset are read, which only questions of an evaluation have."""
        reads = {
            "type_classifier=oracle": self.type_classifier == "oracle",
            "preqrag.classifier=oracle": self.preqrag.classifier == "oracle",
            "richrag.aspects=golden": self.richrag.aspects == "golden",
        }
        return tuple(setting for setting, is_set in reads.items() if is_set)

    def for_type(self, question_type: QuestionType) -> Self:
        """The options for questions of a type.

        Example:
            >>> options = Options(top_k=5, by_type={"debate": {"top_k": 3}})
            >>> options.for_type(QuestionType.DEBATE).top_k, options.for_type(QuestionType.REASON).top_k
            (3, 5)
        """
        own = self.by_type.get(question_type)
        return type(self).model_validate({**self.model_dump(exclude={"by_type"}), **own}) if own else self

    def with_given(self, changes: Mapping[str, Any]) -> Self:
        """These options with the given ones replaced; a mapping changes part of a group.

        Raises:
            InputError: If an option does not exist, or a value does not fit.

        Example:
            >>> Options().with_given({"top_k": "3", "reason": {"search": "sub-query"}}).reason
            SubQueryOptions(combine='pool', search='sub-query')
        """
        try:
            changes = _with_modules(changes)
            options = type(self).model_validate(_merged(self.model_dump(), changes))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"] if "[" not in str(part))  # a union's tags are none
            if first["type"] == "extra_forbidden":
                known = [
                    f"{name}.{inner}" if inner else name
                    for name, value in type(self)().model_dump().items()
                    for inner in (value if isinstance(value, dict) and value else [""])
                ]
                raise InputError(f"there is no option '{name}'", names_hint("Options", name, known)) from None
            if not name:  # several options together
                raise InputError(first["msg"].removeprefix("Value error, "), "See: typedrag ask --help") from None
            problem = " or ".join(dict.fromkeys(e["msg"] for e in error.errors() if e["input"] == first["input"]))
            raise InputError(f"option {name} cannot be '{first['input']}'", problem) from None
        return self.model_copy(update={name: getattr(options, name) for name in changes})

    def as_defaults(self, names: Collection[str] | None = None) -> Self:
        """These options, or only those of some names, marked as not set by the user: no program refuses them."""
        values = {name: value for name, value in self if names is None or name in names}
        return type(self).model_construct(_fields_set=set(), **values)

    @model_validator(mode="after")
    def _options_of_types_fit(self) -> Self:
        for question_type, own in self.by_type.items():
            if unknown := own.keys() - set(PER_TYPE):
                raise ValueError(f"{question_type} has no {min(unknown)} of its own; it may have {', '.join(PER_TYPE)}")
            if "max_sub_queries" in own and question_type not in SUB_QUERY_TYPES:
                raise ValueError(f"{question_type} has no max_sub_queries; {', '.join(SUB_QUERY_TYPES)} have")
            self.for_type(question_type)
        return self

    @classmethod
    def as_published(cls, program: str = "typed_rag", version: Published = "paper") -> Options:
        """The options of a program as its paper, or its authors' `code`, has them and nothing of ours, marked as not
        set by the user.

        Differences that are left are listed by the pages in docs/systems. Those of `rag` and `direct_lm` are
        Typed-RAG's baselines.

        Raises:
            InputError: If it is of no paper that typedrag follows, or there is no code whose settings are known.

        Example:
            >>> Options.as_published().type_classifier, Options.as_published("coverage_retrieval").top_k
            ('hub:Lurunchik/nf-cats', 10)
        """
        return find_preset(program, version).options.as_defaults()


def _with_modules(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with the options that `modules` stands for; those that are given count over them."""
    values_left = dict(values)
    match values_left.pop("modules", None):
        case None:
            return values_left
        case "signatures":
            return _merged(SIGNATURES, values_left)
        case other:
            raise InputError(f"option modules cannot be '{other}'", "Write modules=signatures, or leave it out")


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    groups = {name for name, new in changes.items() if isinstance(new, Mapping) and isinstance(base.get(name), dict)}
    return {**base, **changes, **{name: _merged(base[name], changes[name]) for name in groups}}


_ALL = 1000
_TYPED_RAG = Options(
    type_classifier="hub:Lurunchik/nf-cats",  # section 4.3
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
    experience_search="each",
    rerank_everywhere=False,
    rerank_candidates=5,  # K passages a query, of which the reranker keeps K (figure 2)
    score_cutoff=0,
    ungrounded=True,
)
_COVERAGE = Options(
    top_k=10,
    answer_passages=10,
    answer_prompt="plain",
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
_SHORT = _USUAL.model_copy(update={"answer_length": "phrase", "answer_prompt": "plain", "passage_words": _ALL})
"""Of HANRAG and its baselines, whose questions have short gold answers (table 14)."""


class Preset(NamedTuple):
    """The settings that a program is published with; those left out are as without a preset."""

    options: Options
    retriever: str = ""
    """The spec of what searches, where that is not the program's default."""
    reranker: str = "none"
    bm25: Mapping[BM25Setting, float] = MappingProxyType({})
    """BM25's k1 and b, instead of the index's."""
    language: str = ""
    """The `--language` of the index that is searched."""
    lm: Mapping[str, float | int] = MappingProxyType({})
    """The settings of the LM that answers."""


# No paper prints k1 and b: they are the defaults of Elasticsearch, which the code of Typed-RAG and of Adaptive-RAG
# (HANRAG's setup) has, and of OpenSearch (PreQRAG). Typed-RAG's has the standard analyzer, which has no stems.
_ELASTICSEARCH: Mapping[BM25Setting, float] = {"k1": 1.2, "b": 0.75}
_RAG = Preset(_TYPED_RAG, bm25=_ELASTICSEARCH, language=STANDARD)
_SAMPLED: Mapping[str, float | int] = {"temperature": 0.8, "top_p": 0.95, "max_tokens": 512}
_AS_CODED = _TYPED_RAG.model_copy(update={"experience_search": "question", "retries": 20, "max_lm_calls": 200})
_HANRAG_BASELINE = Preset(_SHORT, bm25=_ELASTICSEARCH)
PRESETS: Mapping[Published, Mapping[str, Preset]] = {
    "paper": {
        "typed_rag": _RAG._replace(reranker="cross-encoder:BAAI/bge-reranker-large"),
        "rag": _RAG,
        "direct_lm": Preset(_TYPED_RAG),
        **dict.fromkeys(
            ("coverage_definition", "coverage_sub_questions", "coverage_retrieval", "coverage_end_to_end"),
            Preset(_COVERAGE, retriever="dense"),
        ),
        "rag_fusion": Preset(_USUAL),
        "preqrag": Preset(
            # chunks of up to 512 tokens, whole
            _USUAL.model_copy(update={"answer_prompt": "plain", "passage_words": _ALL}),
            reranker="cross-encoder:BAAI/bge-reranker-v2-m3",
            bm25=_ELASTICSEARCH,
            language=STANDARD,
        ),
        **dict.fromkeys(("ircot", "adaptive_rag"), _HANRAG_BASELINE),
        "hanrag": _HANRAG_BASELINE._replace(
            options=_SHORT.model_copy(update={"hanrag": HANRAGOptions(end_before_first_step=True, max_lm_calls=_ALL)})
        ),
        # the pool of WikiPassageQA; that of WikiAsp has 270
        "richrag": Preset(
            _USUAL.model_copy(
                update={
                    "answer_passages": 10,
                    "answer_prompt": "plain",
                    "richrag": RichRAGOptions(passages_per_aspect=50, pool_limit=290),
                }
            ),
            retriever="dense",
        ),
    },
    "code": {
        # the reranker is loaded as a model of embeddings; a decomposition is asked for up to 21 times, or 40
        "typed_rag": _RAG._replace(options=_AS_CODED, reranker="bi-encoder:BAAI/bge-reranker-large", lm=_SAMPLED),
        "rag": _RAG._replace(options=_AS_CODED, lm=_SAMPLED),
        "direct_lm": Preset(_AS_CODED, lm=_SAMPLED),
    },
}


def find_preset(program: str, version: Published) -> Preset:
    """The settings that a program is published with, or an `InputError`."""
    if preset := PRESETS[version].get(program):
        return preset
    if program in PRESETS["paper"]:
        raise InputError(
            f"no code of the authors of program '{program}' is followed",
            "Write --as-published alone, by the paper; =code has " + ", ".join(PRESETS["code"]),
        )
    raise InputError(
        f"program '{program}' is of no paper that typedrag follows, so nothing of it is published",
        "Leave out --as-published, or set its options by -o",
    )
