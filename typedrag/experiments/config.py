"""Configuration of an evaluation, from flags or a YAML file; unknown keys are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

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

from typedrag.core.errors import InputError
from typedrag.core.parameters import Parameter, Published
from typedrag.core.question_types import TYPE_CLASSIFIERS
from typedrag.experiments.ray_pool import ray_address
from typedrag.lms.cost import Spending, format_dollars
from typedrag.lms.specs import AdapterName, default_spec, lm_provider, split_address
from typedrag.runs import Limits

CLOSED = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class LMConfig(BaseModel):
    """An LM and its settings. Keys come from the environment, never from here."""

    model_config = CLOSED

    spec: str | None = None
    """`embedded[:NAME]`, `vllm:MODEL`, `vllm-offline:MODEL` or a DSPy name; by default that of the environment.
    What follows an `@` in it, as in `vllm:MODEL@URL`, is its `api_base`."""
    api_base: str | None = None
    """The address of an OpenAI-compatible server. For other LMs than the one that answers, it is by default that of the
    latter. Runs do not record it."""
    temperature: Annotated[NonNegativeFloat | None, Parameter(0.0, 1.0)] = None
    """The sampling temperature; by default 0."""
    max_tokens: PositiveInt | None = None
    """The most tokens that the LM may write in a call; by default 1,024, or 512 if it is embedded."""
    top_p: Annotated[PositiveFloat | None, Parameter(0.5, 1.0)] = None
    """The sampling share `top_p`; by default the server's."""
    top_k: Annotated[PositiveInt | None, Parameter(10, 100, step=10)] = None
    """The most probable tokens that each token is drawn from; by default the server's. Refused for an LM that knows no
    such setting, such as OpenAI's."""
    adapter: Annotated[AdapterName | None, Parameter()] = None
    """The adapter that makes the LM keep to output types: `schema`, `json` or `chat`; by default as suits the LM."""
    seed: int | None = None
    """The seed that is sent with each call, to servers that take one."""
    timeout: PositiveFloat | None = None
    """Seconds to wait for a reply before it is asked for once more, and then given up; by default 120, 300 for an LM
    that reasons first, 600 for an embedded one."""
    num_retries: NonNegativeInt | None = None
    """The number of new attempts after a fault of the network or the server; by default 3."""
    cache: bool = False
    """Reuse stored replies. Evaluations and sweeps set this for the LM that answers, and store all its replies; a
    reused reply counts as the calls and tokens that it took."""

    @model_validator(mode="before")
    @classmethod
    def _keep_addresses_apart(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(spec := values.get("spec"), str):
            spec, api_base = split_address(spec)
            if api_base:
                return {**values, "spec": spec, "api_base": api_base}
        return values

    def inherit_address(self, lm: LMConfig) -> LMConfig:
        """The same LM at the server of another one, unless it has an address, or a provider with its own.

        Example:
            >>> lm = LMConfig(spec="openai/answers", api_base="http://localhost:8000/v1")
            >>> [LMConfig(spec=spec).inherit_address(lm).api_base for spec in ("vllm:judges", "anthropic/judges")]
            ['http://localhost:8000/v1', None]
        """
        mine, its = (lm_provider(config.spec or default_spec()) for config in (self, lm))
        if self.api_base or mine not in ("vllm", its):
            return self
        return self.model_copy(update={"api_base": lm.api_base})

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are set, as `open_lm` takes them."""
        return self.model_dump(exclude={"spec", "api_base"}, exclude_none=True)


class BM25Config(BaseModel):
    """Weights of terms in BM25; by default those of the index."""

    model_config = CLOSED

    k1: Annotated[NonNegativeFloat | None, Parameter(0.4, 2.0)] = None
    """The saturation of repeated terms: the lower, the less further occurrences count."""
    b: Annotated[float | None, Field(ge=0, le=1), Parameter(0.0, 1.0)] = None
    """The penalty on long passages."""

    @property
    def settings(self) -> dict[Literal["k1", "b"], float]:
        """The settings that are set, as `BM25Retriever` takes them."""
        values: dict[Literal["k1", "b"], float | None] = {"k1": self.k1, "b": self.b}
        return {name: value for name, value in values.items() if value is not None}


class ProgramConfig(BaseModel):
    """A program and its options."""

    model_config = CLOSED

    program: Annotated[str, Parameter()]
    """`typed_rag`, `rag`, `direct_lm` or another program's name, or the place of a compiled one: a folder,
    `models:/NAME@ALIAS`, `models:/NAME/VERSION` or `runs:/ID/PATH`."""
    name: str = Field(default="", pattern=r"^[\w.+-]*$")
    """The name of the run, and of its folder below `--out`. Without a name, the run is in `--out` itself."""
    as_published: Annotated[
        Published | None,
        BeforeValidator(
            lambda value: {True: "paper", False: None}[value] if isinstance(value, bool) else value,
            json_schema_input_type=Published | bool | None,
        ),
    ] = None
    """Begin with the options, the reranker and the LM's settings that the program's paper has, instead of the
    defaults; with `code` those of the authors' code, where it differs and is known. `rag` and `direct_lm` are then
    Typed-RAG's baselines."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the program that differ from the defaults, such as `top_k` or `reason: {combine: pool}`; of a
    compiled program, those that differ from what it was compiled with."""
    reranker: Annotated[str | None, Parameter(choices=("none", "bi-encoder"))] = None
    """`none`, `bi-encoder[:NAME]`, `cross-encoder[:NAME]`, `monot5:NAME`, `rankt5:NAME`, `lit5:NAME`, `list:FOLDER`,
    `lm-pointwise` or `lm-listwise`; by default the one that a program was compiled with, else `none`."""
    retriever: Annotated[str | None, Parameter(choices=("bm25", "dense", "hybrid"))] = None
    """`bm25`, `dense`, `hybrid`, `hybrid:WEIGHT` of the dense part, `auto`, which is `hybrid` where the index
    has both parts, `gold`, the `passage_ids` of the dataset's question as an ideal context, the `http://HOST:PORT` of
    an index server, `milvus:http://HOST:PORT/COLLECTION`, or `pyserini:NAME_OR_FOLDER` and other kinds that packages
    bring; by default that which a program was compiled with, `auto` of `preqrag`, `bm25` of others."""
    bm25: BM25Config = BM25Config()
    """Settings of its BM25; by default those that a program was compiled with, else those of the index."""


def _checked(check: Callable[[str], object]) -> AfterValidator:
    """A validator that refuses what the check refuses by an `InputError`."""

    def validate(text: str) -> str:
        try:
            check(text)
        except InputError as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(validate)


class DataConfig(BaseModel):
    """A dataset."""

    model_config = CLOSED

    name: str
    """The name of the dataset; see `typedrag datasets list`."""
    path: Path | None = None
    """A file or folder in the dataset's own layout; by default the dataset is fetched from its public home."""
    subset: str | None = None
    """One of its subsets; by default all."""
    fields: dict[str, str] = Field(default_factory=dict)
    """The columns of your own file by field, such as `answers: gold`; other columns have the field's name."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the dataset's loader."""
    type_classifier: Annotated[str, _checked(TYPE_CLASSIFIERS.parse)] | None = None
    """The type classifier for questions without a labelled type; questions are drawn and reported by their types. See
    the option of programs; by default that of the first program whose options name one, else `linear`."""
    seed: int = 0
    """The seed of the draw. A larger limit adds questions to those of a smaller one."""


class DatasetConfig(DataConfig):
    """The questions of an evaluation."""

    split: str = ""
    """`train`, `validation`, `test` or `all`; by default the source's own test split, such as an official dev file,
    if it has one, else all."""
    limit: PositiveInt | None = None
    """The most questions, drawn in turn from each subset and type; by default all."""


def named(value: Any) -> Any:
    """Settings with this name, if the value is a name alone; else the value itself."""
    return {"name": value} if isinstance(value, str) else value


class MetricConfig(BaseModel):
    """A metric and its options. Its name alone is enough."""

    model_config = CLOSED

    name: str
    """The name of the metric, such as `linkage`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the metric's class."""


class SpendingCaps(BaseModel):
    """Limits of spending, at which a run stops; it can be continued. Calls under way still end."""

    model_config = CLOSED

    tokens: PositiveInt | None = None
    """The most tokens that all LMs read and write, in all runs below `--out` and earlier sessions."""
    lm_calls: PositiveInt | None = None
    """The most LM calls, in all runs below `--out` and earlier sessions."""
    cost: PositiveFloat | None = None
    """The most dollars, in all runs below `--out` and earlier sessions, for LMs whose prices are known: by LiteLLM's
    table or `TYPEDRAG_PRICES`."""
    minutes: PositiveFloat | None = None
    """The most minutes of this session."""

    def stopper(self) -> Limits:
        """The stopper at the first limit that is reached; minutes are counted from now."""
        return Limits(self.tokens, self.lm_calls, self.cost, self.minutes)

    def exceeded_caps(self, expected: Spending) -> str:
        """The caps that stop a run before it has spent so much; empty if none does."""
        caps = (
            (self.tokens, expected.tokens, f"{self.tokens:,} tokens" if self.tokens else ""),
            (self.lm_calls, expected.usage.lm_calls, f"{self.lm_calls:,} LM calls" if self.lm_calls else ""),
            (self.cost, expected.dollars, format_dollars(self.cost) if self.cost else ""),
        )
        return " and ".join(words for cap, amount, words in caps if cap is not None and amount > cap)


class CapsConfig(SpendingCaps):
    """Limits at which a run stops."""

    failures: float = Field(default=0.3, ge=0, le=1)
    """The share of failed answers or judgments above which a run stops."""


class TrackingConfig(BaseModel):
    """Settings of MLflow's tracking."""

    model_config = CLOSED

    enabled: bool = True
    """Log runs to MLflow."""
    uri: str | None = None
    """The tracking store; by default `MLFLOW_TRACKING_URI`, else SQLite in typedrag's data folder."""
    experiment: str | None = None
    """The name of MLflow's experiment; by default `MLFLOW_EXPERIMENT_NAME`, else typedrag."""
    tracing: bool = False
    """Record each LM call as a span of an MLflow trace."""

    def disabled(self) -> TrackingConfig:
        """The same without logging; registered programs are still looked up in its store."""
        return self.model_copy(update={"enabled": False})


def distinct(problem: str) -> AfterValidator:
    """A validator of things with names, which refuses two of the same name with these words."""

    def validate(things: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [thing.name for thing in things]
        if len(set(names)) < len(names):
            raise ValueError(problem)
        return things

    return AfterValidator(validate)


class ExperimentConfig(BaseModel):
    """The settings that evaluations, compiles and sweeps share."""

    model_config = CLOSED

    lm: LMConfig = LMConfig()
    """The LM that answers, and that a program is compiled for."""
    scorer: LMConfig | None = None
    """The LM behind judges; not needed if no metric asks one."""
    index: Path | None = None
    """The index of passages, for programs that retrieve; by default `TYPEDRAG_INDEX`, else a sample corpus."""
    threads: PositiveInt = 16
    """Questions and judgments under way at once."""
    calls_in_flight: PositiveInt = 16
    """LM calls of a process at once, over all its threads."""
    tracking: TrackingConfig = TrackingConfig()
    """MLflow."""


class EvaluationConfig(ExperimentConfig):
    """Programs that answer the same questions, and the metrics of their answers."""

    programs: tuple[ProgramConfig, ...] = Field(min_length=1)
    """The programs; each makes a run."""
    dataset: DatasetConfig
    """The questions."""
    metrics: Annotated[tuple[Annotated[MetricConfig, BeforeValidator(named)], ...], distinct("a metric is named twice")]
    """The metrics of answers: names, or names with options."""
    executor: Annotated[str, _checked(ray_address)] = "local"
    """`local`, or a Ray cluster whose workers answer and measure: `ray`, `ray:auto`, `ray:HOST:PORT` or
    `ray://HOST:PORT`. All limits are over all workers."""
    workers: PositiveInt | None = None
    """The number of Ray's workers; by default one for each CPU of the cluster."""
    caps: CapsConfig = CapsConfig()
    """Limits that stop a run."""
    replies: Path | None = None
    """The file of LM replies, judges' too, which runs share; by default `replies.sqlite` beside their folders."""

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = [p.name for p in self.programs]
        if len(names) > 1 and (not all(names) or len(set(names)) < len(names)):
            raise ValueError("each of several programs needs a name of its own")
        return self

    @model_validator(mode="after")
    def _lm_is_as_published(self) -> Self:
        """The LM that answers takes the settings that its programs are published with, where it has none."""
        if not any(program.as_published for program in self.programs):
            return self
        from typedrag.programs.options import PRESETS  # it brings DSPy

        presets = (
            PRESETS[p.as_published].get(p.program.replace("-", "_")) if p.as_published else None for p in self.programs
        )
        published = [
            {name: value for name, value in (preset.lm if preset else {}).items() if getattr(self.lm, name) is None}
            for preset in presets
        ]
        if any(settings != published[0] for settings in published):
            raise ValueError(
                "programs that share an LM are published with different settings of it: evaluate them apart, or set "
                + ", ".join(f"lm.{name}" for name in max(published, key=len))
            )
        self.__dict__["lm"] = self.lm.model_copy(update=published[0])
        return self
