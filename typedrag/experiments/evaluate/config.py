"""What an evaluation is made of: a closed model, as flags or a YAML file give it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from typedrag.errors import InputError
from typedrag.lms.lm import AdapterName, default_spec, provider_of
from typedrag.programs.knobs import Knob
from typedrag.programs.makes import make_named

CLOSED = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LMConfig(BaseModel):
    """An LM and how it is asked. Keys come from the environment, never from here."""

    model_config = CLOSED

    spec: str | None = None
    """`embedded[:NAME]`, `vllm:MODEL` or a DSPy name; by default that of the environment."""
    api_base: str | None = None
    """Address of an OpenAI-compatible server; of all LMs but the one that answers by default the latter's, see
    `beside`. It is not part of what is recorded of a run."""
    temperature: Annotated[NonNegativeFloat | None, Knob(0.0, 1.0)] = None
    """By default 0."""
    max_tokens: PositiveInt | None = None
    """That the LM may write in a call; by default 1,024, or 512 if it is embedded."""
    top_p: Annotated[PositiveFloat | None, Knob(0.5, 1.0)] = None
    """By default the server's."""
    adapter: Annotated[AdapterName | None, Knob()] = None
    """How it is made to keep to the types that are asked for: `schema`, `json` or `chat`; by default as suits it."""
    seed: int | None = None
    """Sent with each call, to servers that take one."""
    timeout: PositiveFloat | None = None
    """Seconds that a reply may take, before it is asked for once more and given up; by default 120, 300 for an LM that
    reasons first, 600 for an embedded one."""
    num_retries: NonNegativeInt | None = None
    """How often a call is made again after a fault of the network or the server; by default 3."""
    cache: bool = False
    """Whether a reply that was kept may answer. Of the LM that answers, evaluations and sweeps keep all, and
    set this; they count as the calls and tokens that they took."""

    def beside(self, lm: LMConfig) -> LMConfig:
        """The same at the server of another LM, unless its address is named or it is of a provider with its own.

        Example:
            >>> lm = LMConfig(spec="openai/answers", api_base="http://localhost:8000/v1")
            >>> [LMConfig(spec=s).beside(lm).api_base for s in ("openai/judges", "vllm:judges", "anthropic/judges")]
            ['http://localhost:8000/v1', 'http://localhost:8000/v1', None]
        """
        mine, its = (provider_of(wanted.spec or default_spec()) for wanted in (self, lm))
        if self.api_base or mine not in ("vllm", its):
            return self
        return self.model_copy(update={"api_base": lm.api_base})

    @property
    def settings(self) -> dict[str, Any]:
        """Those that are set, as `open_lm` takes them."""
        return self.model_dump(exclude={"spec", "api_base"}, exclude_none=True)


class BM25Config(BaseModel):
    """How BM25 weighs terms; by default as the index says."""

    model_config = CLOSED

    k1: Annotated[NonNegativeFloat | None, Knob(0.4, 2.0)] = None
    """How soon more occurrences of a term count for no more."""
    b: Annotated[float | None, Field(ge=0, le=1), Knob(0.0, 1.0)] = None
    """How much long passages are held back."""

    @property
    def settings(self) -> dict[Literal["k1", "b"], float]:
        """Those that are set, as `BM25Retriever` takes them."""
        given: dict[Literal["k1", "b"], float | None] = {"k1": self.k1, "b": self.b}
        return {name: value for name, value in given.items() if value is not None}


class ProgramConfig(BaseModel):
    """A program of the table, and its options."""

    model_config = CLOSED

    program: Annotated[str, Knob()]
    """`typed_rag`, `rag`, `direct_lm` or another that is known; or where a compiled one is: a folder,
    `models:/NAME@ALIAS`, `models:/NAME/VERSION` or `runs:/ID/PATH`."""
    name: str = Field(default="", pattern=r"^[\w.+-]*$")
    """Of the run and of its folder below `--out`. Without one the run is in `--out` itself."""
    as_published: bool = False
    """Whether its options are by default those of Typed-RAG as its paper draws it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the program that differ from the defaults, such as `top_k` or `reason: {combine: pool}`;
    for a compiled one, from those that it was compiled with."""
    reranker: Annotated[str | None, Knob(choices=("none", "bi-encoder"))] = None
    """`none`, `bi-encoder[:NAME]`, `cross-encoder[:NAME]`, `list:FOLDER`, `lm-pointwise` or `lm-listwise`; by
    default `none`, or that which a program was compiled with."""
    retriever: Annotated[str | None, Knob(choices=("bm25", "dense", "hybrid"))] = None
    """`bm25`, `dense`, `hybrid`, `hybrid:WEIGHT` of the dense part, `auto`, which is `hybrid` where the index
    has both parts, or the `http://HOST:PORT` of an index server; by default that which a program was
    compiled with, `auto` of `preqrag`, `bm25` of others."""
    bm25: BM25Config = BM25Config()
    """Of its retriever; what is not set is as a program was compiled with, else as the index says."""


def _make(text: str) -> str:
    try:
        make_named(text)
    except InputError as error:
        raise ValueError(str(error)) from None
    return text


class DataConfig(BaseModel):
    """Where questions come from."""

    model_config = CLOSED

    name: str
    """Of the dataset; see `typedrag datasets list`."""
    path: Path | None = None
    """A file or folder of its native layout; by default it is read from its public home."""
    subset: str | None = None
    """One of its subsets; by default all."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Which column of a file of one's own holds what, as `answers: gold`; those not named are called as here."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of its loader."""
    type_classifier: Annotated[str, AfterValidator(_make)] | None = None
    """Who names the type of a question that the dataset has none for: what questions are drawn and reported by.
    As the option of programs; by default that of the first program whose options name one, else `linear`."""
    seed: int = 0
    """Of what is drawn. A larger limit adds to what a smaller one gives."""


class DatasetConfig(DataConfig):
    """Which questions are asked."""

    split: str = ""
    """`train`, `validation`, `test` or `all`; by default what the dataset is tested on where its source has dealt
    its questions out, such as an official dev file, else all."""
    limit: PositiveInt | None = None
    """Questions, drawn in turn from each subset and type; by default all."""


def named(given: Any) -> Any:
    """A name alone, as the settings of what has that name."""
    return {"name": given} if isinstance(given, str) else given


class MetricConfig(BaseModel):
    """A metric and its options. Its name alone is enough."""

    model_config = CLOSED

    name: str
    """Of the metric, such as `linkage`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """As its class takes them."""


class CapsConfig(BaseModel):
    """When to stop: a run that was stopped can be continued. Calls under way still end."""

    model_config = CLOSED

    tokens: PositiveInt | None = None
    """Read and written by all LMs, for all runs below `--out`, those of earlier sessions counted in."""
    lm_calls: PositiveInt | None = None
    """The same for LM calls."""
    cost: PositiveFloat | None = None
    """The same in dollars, for LMs whose prices DSPy knows."""
    failures: float = Field(default=0.3, ge=0, le=1)
    """The share of a run's questions whose answers or judgments fail, above which it stops."""


class TrackingConfig(BaseModel):
    """Where MLflow keeps the runs."""

    model_config = CLOSED

    enabled: bool = True
    """Whether MLflow is told of the runs at all."""
    uri: str | None = None
    """Of the tracking store; by default `MLFLOW_TRACKING_URI`, else SQLite in typedrag's cache folder."""
    experiment: str = "typedrag"
    """The name of MLflow's experiment."""
    tracing: bool = False
    """Whether each call of an LM becomes a span of an MLflow trace."""


M = TypeVar("M", bound=MetricConfig)


def distinct(metrics: tuple[M, ...]) -> tuple[M, ...]:
    """The metrics, unless one is named twice."""
    names = [m.name for m in metrics]
    if len(set(names)) < len(names):
        raise ValueError("a metric is named twice")
    return metrics


class EvaluationConfig(BaseModel):
    """Programs, each of which answers the same questions, and what their answers are measured by."""

    model_config = CLOSED

    programs: tuple[ProgramConfig, ...] = Field(min_length=1)
    """A run each."""
    dataset: DatasetConfig
    """The questions."""
    metrics: Annotated[tuple[Annotated[MetricConfig, BeforeValidator(named)], ...], AfterValidator(distinct)]
    """What the answers are measured by: names, or names with options."""
    lm: LMConfig = LMConfig()
    """Which answers."""
    scorer: LMConfig | None = None
    """The LM behind judges; not needed where no metric asks one."""
    index: Path | None = None
    """Where passages come from, for programs that retrieve; by default as for `typedrag ask`."""
    threads: PositiveInt = 16
    """Questions and judgments under way at once."""
    calls_in_flight: PositiveInt = 16
    """LM calls at once, whatever the threads that ask."""
    caps: CapsConfig = CapsConfig()
    """When to stop."""
    judgments: Path | None = None
    """The file that judgments are kept in, which runs share; by default `judgments.sqlite` beside their folders."""
    tracking: TrackingConfig = TrackingConfig()
    """MLflow."""

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = [p.name for p in self.programs]
        if len(names) > 1 and (not all(names) or len(set(names)) < len(names)):
            raise ValueError("each of several programs needs a name of its own")
        return self
