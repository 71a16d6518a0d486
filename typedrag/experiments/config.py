"""What an evaluation is made of: a closed model, as flags or a YAML file give it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated, Any, Self

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
    ValidationError,
    model_validator,
)

from typedrag.errors import InputError

_CLOSED = ConfigDict(extra="forbid", frozen=True)


class LMConfig(BaseModel):
    """An LM and how it is asked. Keys come from the environment, never from here."""

    model_config = _CLOSED

    spec: str | None = None
    """`embedded[:NAME]`, `vllm:MODEL` or a DSPy name; by default that of the environment."""
    api_base: str | None = None
    """Address of an OpenAI-compatible server. It is not part of what is recorded of a run."""
    temperature: NonNegativeFloat | None = None
    """By default 0."""
    max_tokens: PositiveInt | None = None
    """That the LM may write in a call; by default 1,024, or 512 if it is embedded."""
    top_p: PositiveFloat | None = None
    """By default the server's."""
    seed: int | None = None
    """Sent with each call, to servers that take one."""
    timeout: PositiveFloat | None = None
    """Seconds until a call is given up; by default 600 for embedded and vLLM."""
    num_retries: NonNegativeInt | None = None
    """How often a call is made again after a fault of the network or the server; by default 3."""
    cache: bool = False
    """Whether DSPy's cache may answer. What it answers is not counted as calls and tokens, so that
    programs would look cheaper than they are."""

    @property
    def settings(self) -> dict[str, Any]:
        """Those that are set, as `open_lm` takes them."""
        return self.model_dump(exclude={"spec", "api_base"}, exclude_none=True)


class ProgramConfig(BaseModel):
    """A program of the table, and its options."""

    model_config = _CLOSED

    program: str
    """`typed_rag`, `rag`, `direct_lm` or another that is known."""
    name: str = Field(default="", pattern=r"^[\w.+-]*$")
    """Of the run and of its folder below `--out`. Without one the run is in `--out` itself."""
    as_published: bool = False
    """Whether its options are by default those of Typed-RAG as its paper draws it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the program that differ from the defaults, such as `top_k` or `reason: {combine: pool}`."""
    reranker: str = "none"
    """`none`, `bi-encoder[:NAME]` or `cross-encoder[:NAME]`."""


class DatasetConfig(BaseModel):
    """Which questions are asked."""

    model_config = _CLOSED

    name: str
    """Of the dataset; see `typedrag datasets list`."""
    path: Path | None = None
    """A file or folder of its native layout; by default it is read from its public home."""
    subset: str | None = None
    """One of its subsets; by default all."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of its loader, such as the fields of a file."""
    split: str = "all"
    """`train`, `validation`, `test` or `all`."""
    limit: PositiveInt | None = None
    """Questions, drawn in turn from each subset and type; by default all."""
    seed: int = 0
    """Of the draw. A larger limit adds to what a smaller one gives."""


def _named(given: Any) -> Any:
    return {"name": given} if isinstance(given, str) else given


class MetricConfig(BaseModel):
    """A metric and its options. Its name alone is enough."""

    model_config = _CLOSED

    name: str
    """Of the metric, such as `linkage`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """As its class takes them."""


class CapsConfig(BaseModel):
    """When to stop: a run that was stopped can be continued. Calls under way still end."""

    model_config = _CLOSED

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

    model_config = _CLOSED

    enabled: bool = True
    """Whether MLflow is told of the runs at all."""
    uri: str | None = None
    """Of the tracking store; by default `MLFLOW_TRACKING_URI`, else SQLite in typedrag's cache folder."""
    experiment: str = "typedrag"
    """The name of MLflow's experiment."""
    tracing: bool = False
    """Whether each call of an LM becomes a span of an MLflow trace."""


def _distinct(metrics: tuple[MetricConfig, ...]) -> tuple[MetricConfig, ...]:
    names = [m.name for m in metrics]
    if len(set(names)) < len(names):
        raise ValueError("a metric is named twice")
    return metrics


class EvaluationConfig(BaseModel):
    """Programs, each of which answers the same questions, and what their answers are measured by."""

    model_config = _CLOSED

    programs: tuple[ProgramConfig, ...] = Field(min_length=1)
    """A run each."""
    dataset: DatasetConfig
    """The questions."""
    metrics: Annotated[
        tuple[Annotated[MetricConfig, BeforeValidator(_named)], ...], AfterValidator(_distinct), Field(min_length=1)
    ]
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


def read_config(file: Path | None, flags: Mapping[str, Any] | None = None) -> EvaluationConfig:
    """The evaluation that a YAML file describes, over which flags have the last word.

    `${NAME}` in a text of the file is replaced by the environment's variable of that name.

    Args:
        file: May be None where the flags say all.
        flags: Nested as the model is; what is None says nothing. A list takes the place of the
            file's, but a metric that is named without options keeps those that it has there.

    Raises:
        InputError: If the file cannot be read, names an unknown setting or a variable that is not
            set, or lacks what is needed.
    """
    written = _read_yaml(file) if file else {}
    values = _merged(written, flags or {}, file)
    if isinstance(values.get("metrics"), list):
        values["metrics"] = [_with_options(metric, written.get("metrics"), file) for metric in values["metrics"]]
    try:
        return EvaluationConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "programs"
        problem = "is missing" if first["type"] == "missing" else f"is refused: {first['msg']}"
        raise InputError(f"{file or 'the evaluation'}: {name} {problem}", "See: typedrag evaluate --help") from None


def _read_yaml(file: Path) -> dict[str, Any]:
    import yaml

    try:
        values = yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror})", "Name another --config") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not YAML: {' '.join(str(error).split())}", "Mend the file") from None
    if not isinstance(values, dict):
        raise InputError(f"{file} holds no settings", "Write NAME: VALUE lines")
    return values


def _merged(below: Mapping[str, Any], above: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    """What is above, over what is below, whose variables are looked up only where it counts."""
    merged = {name: _substituted(value, file) for name, value in below.items() if above.get(name) is None}
    for name, value in above.items():
        if isinstance(value, Mapping):
            held = below.get(name)
            value = _merged(held if isinstance(held, Mapping) else {}, value, file)
        if value is not None and value != {}:
            merged[name] = value
    return merged


def _with_options(metric: Any, written: Any, file: Path | None) -> Any:
    """A metric with the options that a file has for it, if it has none of its own."""
    named = {"name": metric} if isinstance(metric, str) else metric
    if isinstance(named, dict) and not named.get("options"):
        for known in written if isinstance(written, list) else ():
            if isinstance(known, dict) and known.get("name") == named.get("name"):
                return _substituted(known, file)
    return metric


def _substituted(value: Any, file: Path | None) -> Any:
    if isinstance(value, dict):
        return {name: _substituted(inner, file) for name, inner in value.items()}
    if isinstance(value, list):
        return [_substituted(inner, file) for inner in value]
    if not isinstance(value, str):
        return value
    try:
        return Template(value).substitute(os.environ)
    except KeyError as error:
        name = error.args[0]
        raise InputError(f"{file} needs the environment variable {name}", f"Set it: {name}=… typedrag …") from None
    except ValueError:
        raise InputError(f"{file}: '{value}' has a $ that names no variable", "Write $$ for a $") from None
