"""Configuration of a sweep, from a YAML file; unknown keys are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from typedrag.core.errors import InputError
from typedrag.core.parameters import Value
from typedrag.experiments.config import CLOSED, CapsConfig, DatasetConfig, ExperimentConfig, ProgramConfig
from typedrag.experiments.config_file import read_into, read_yaml
from typedrag.experiments.held_out import SCORE
from typedrag.experiments.results import higher_is_better
from typedrag.files.text_files import parse_yaml, write_text
from typedrag.optimizers.compile.config import BudgetConfig, WeightedMetric, WeightedMetrics, default_metrics

SamplerName = Literal["tpe", "random", "qmc", "nsga2", "gp", "grid"]
"""Optuna's samplers, and `grid`: every point once, in an order drawn by the seed."""


class KnobConfig(BaseModel):
    """The values that a knob is turned to; a field that is not given is as the option declares it."""

    model_config = CLOSED

    values: tuple[Value, ...] = ()
    """The only values. A list in the place of the knob means the same."""
    low: float | None = None
    """The least value."""
    high: float | None = None
    """The greatest value."""
    step: PositiveFloat | None = None
    """The step between values."""
    log: bool = False
    """Draw values on a logarithmic scale: small differences matter more between small values."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if value is None:
            return {}
        return {"values": value} if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> KnobConfig:
        if self.values and (self.low is not None or self.high is not None):
            raise ValueError("a knob has values or a range, not both")
        if (self.low is None) != (self.high is None) or (self.low or 0) > (self.high or 0):
            raise ValueError("a range goes from low up to high")
        return self


class ObjectiveConfig(BaseModel):
    """A measure that trials should be good at. Its name alone is enough."""

    model_config = CLOSED

    measure: str = Field(pattern=r"^[^/]+/.+$")
    """`METRIC/MEASURE`, such as `linkage/mrr`; `objective/score`, the weighted mean of all metrics; or the cost of
    an answer: `cost/tokens`, `cost/lm_calls` or `cost/seconds`."""
    direction: Literal["maximize", "minimize"] | None = None
    """The direction that is better; by default `minimize` for costs and ranks, `maximize` for others."""

    @property
    def sign(self) -> int:
        return 1 if (self.direction == "maximize" if self.direction else higher_is_better(self.measure)) else -1


class ConstraintConfig(BaseModel):
    """A limit that a trial must keep to."""

    model_config = CLOSED

    measure: str = Field(pattern=r"^[^/]+/.+$")
    """The measure, as in objectives."""
    at_most: float | None = None
    """The highest mean over questions that is allowed."""
    at_least: float | None = None
    """The lowest mean over questions that is allowed."""

    @model_validator(mode="after")
    def _says_something(self) -> ConstraintConfig:
        if self.at_most is None and self.at_least is None:
            raise ValueError("say at_most or at_least")
        return self


class SamplerConfig(BaseModel):
    """The sampler that chooses the points."""

    model_config = CLOSED

    name: SamplerName = "tpe"
    """One of Optuna's, or `grid`."""
    seed: int = 0
    """The seed: with the same one, a worker makes the same trials, however often it is killed."""
    startup: PositiveInt = 10
    """Random trials before `tpe` and `gp` begin to learn."""


class PruningConfig(BaseModel):
    """Successive halving over questions. A trial answers the first questions, and more only if it is
    among the better trials so far. All trials answer the same questions in the same order."""

    model_config = CLOSED

    enabled: bool = True
    """Prune; if not, each trial answers all questions."""
    first: PositiveInt = 8
    """Questions in the smallest set."""
    growth: Annotated[int, Field(ge=2)] = 2
    """Each set is this many times as large as the one before, and one in so many trials answers it."""


class StopConfig(BaseModel):
    """Limits that end the sweep, whichever comes first. The same command with other limits continues it."""

    model_config = CLOSED

    trials: PositiveInt = 50
    """Trials of all workers together, pruned ones included."""
    minutes: PositiveFloat | None = None
    """Minutes of a worker, from its own start."""
    tokens: PositiveInt | None = None
    """Tokens of all workers together."""
    no_improvement: PositiveInt | None = None
    """Finished trials in a row without a better one (with several objectives: without one on the front)."""


class SweepData(DatasetConfig):
    """The questions that trials are compared on."""

    split: str = "validation"
    """`train`, `validation`, `test` or `all`. Compiles use train and validation."""


class HeldOutConfig(BaseModel):
    """The questions that the best is measured on again."""

    model_config = CLOSED

    split: str = "test"
    """A split of the same dataset."""
    limit: PositiveInt | None = None
    """The most questions, drawn in turn from each subset and type; by default all."""


class CompileSection(BaseModel):
    """The optimizers that the knob `optimizer` chooses among. Each compiles the program once, on train
    and validation, whatever the number of trials that use it."""

    model_config = CLOSED

    optimizers: dict[Annotated[str, Field(pattern=r"^[\w+:-]+$")], dict[str, Any]] = Field(min_length=1)
    """Options by the optimizer's name; `none`, which leaves the program as it is, needs none."""
    metrics: WeightedMetrics = ()
    """What is compiled against; by default as for `typedrag compile`."""
    modules: str = ""
    """The modules of the program to compile; by default all."""
    budget: BudgetConfig = BudgetConfig()
    """The budget of each compile."""

    @property
    def against(self) -> tuple[WeightedMetric, ...]:
        return self.metrics or default_metrics()


class SweepConfig(ExperimentConfig):
    """A search space, and the objectives of the search."""

    name: str = Field(default="sweep", pattern=r"^[\w.+-]+$")
    """The name of the study."""
    program: ProgramConfig
    """The program whose knobs are turned; other options stay as they are here. `reference`, whose answers are the
    dataset's, asks no LM: for sweeps over weights of the rating alone."""
    knobs: dict[str, KnobConfig] = Field(min_length=1)
    """The knobs to turn, each with a list of values, a range, or nothing for its declared range."""
    objectives: Annotated[
        tuple[Annotated[ObjectiveConfig, BeforeValidator(lambda v: {"measure": v} if isinstance(v, str) else v)], ...],
        Field(min_length=1, max_length=4),
    ] = (ObjectiveConfig(measure=SCORE),)
    """The measures to optimize, by default the weighted mean of all metrics; with several, the result is the front
    of trials that no other beats in all."""
    constraints: tuple[ConstraintConfig, ...] = ()
    """Limits to keep to. Trials that break one rank below all that break none."""
    sampler: SamplerConfig = SamplerConfig()
    """The sampler that chooses the points."""
    pruning: PruningConfig = PruningConfig()
    """The rule that ends trials early."""
    stop: StopConfig = StopConfig()
    """Limits that end the sweep."""
    dataset: SweepData
    """The questions; give a limit, since each trial that is not pruned answers all."""
    held_out: HeldOutConfig = HeldOutConfig()
    """The questions that `typedrag sweep best` measures the best on."""
    metrics: WeightedMetrics = ()
    """What the answers are measured by: names, or names with options and weights in `objective/score`; by default a
    mix that fabrications do not win."""
    compile: CompileSection | None = None
    """The optimizers to compile with; only knob `optimizer` needs them."""
    failures: float = Field(default=CapsConfig().failures, ge=0, le=1)
    """The share of failed answers or judgments above which a trial is pruned."""
    storage: str | None = None
    """`postgresql://USER@HOST/NAME`, for workers on several machines; by default a SQLite file in `--out`."""
    heartbeat: PositiveFloat = 10.0
    """Seconds between heartbeats; a worker that misses three counts as dead, and its trial is retried."""

    @property
    def weighted_metrics(self) -> tuple[WeightedMetric, ...]:
        return self.metrics or default_metrics()

    @property
    def weights(self) -> dict[str, float]:
        return {metric.name: metric.weight for metric in self.weighted_metrics}

    @model_validator(mode="after")
    def _measures_differ(self) -> SweepConfig:
        measures = [objective.measure for objective in self.objectives]
        if len(set(measures)) < len(measures):
            raise ValueError("an objective is named twice")
        return self


FILE = "sweep.yaml"


def read_sweep(file: Path, flags: Mapping[str, Any] | None = None, settings: Iterable[str] = ()) -> SweepConfig:
    return read_into(SweepConfig, "sweep", file, flags, settings, hint="See: typedrag sweep --schema")


def keep_file(file: Path, folder: Path) -> None:
    """Copy a sweep's file to its folder, without substituting variables: their values may be secret."""
    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    if file.resolve() == (folder / FILE).resolve():
        return
    text = file.read_text("utf-8")
    if "extends" in parse_yaml(text):
        text = yaml.safe_dump(read_yaml(file), sort_keys=False, allow_unicode=True)
    write_text(folder / FILE, text)


def read_kept(folder: Path, flags: Mapping[str, Any] | None = None, settings: Iterable[str] = ()) -> SweepConfig:
    if not (folder / FILE).is_file():
        raise InputError(f"{folder} holds no sweep", "Name the --out of a typedrag sweep")
    return read_sweep(folder / FILE, flags, settings)
