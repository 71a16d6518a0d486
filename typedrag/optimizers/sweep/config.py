"""What a sweep is made of: closed models, as a YAML file gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from typedrag.experiments.compare.compare import higher_is_better
from typedrag.experiments.compare.weighted import SCORE
from typedrag.experiments.evaluate.config import (
    CLOSED,
    CapsConfig,
    DataConfig,
    DatasetConfig,
    LMConfig,
    ProgramConfig,
    TrackingConfig,
)
from typedrag.optimizers.compile.config import BudgetConfig, WeightedMetric, WeightedMetrics, default_metrics
from typedrag.programs.knobs import Value
from typedrag.sub_questions.coverage_judges import DEFAULT_CITE, Cite

SamplerName = Literal["tpe", "random", "qmc", "nsga2", "gp", "grid"]
"""Optuna's samplers, and `grid`: every point once, in an order that the seed draws."""


class KnobConfig(BaseModel):
    """The values that a knob is turned to. What is not given is as it is declared beside the setting."""

    model_config = CLOSED

    values: tuple[Value, ...] = ()
    """These alone. A list in the place of the knob means the same."""
    low: float | None = None
    """Least value."""
    high: float | None = None
    """Greatest value."""
    step: PositiveFloat | None = None
    """Between values."""
    log: bool = False
    """Whether small differences matter more where values are small."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        if given is None:
            return {}
        return {"values": given} if isinstance(given, list | tuple) else given

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> KnobConfig:
        if self.values and (self.low is not None or self.high is not None):
            raise ValueError("a knob has values or a range, not both")
        if (self.low is None) != (self.high is None) or (self.low or 0) > (self.high or 0):
            raise ValueError("a range goes from low up to high")
        return self


class ObjectiveConfig(BaseModel):
    """A measure that trials are to be good at. Its name alone is enough."""

    model_config = CLOSED

    measure: str = Field(pattern=r"^[^/]+/.+$")
    """As `METRIC/MEASURE`, such as `linkage/mrr`; `objective/score`, the weighted mean of all metrics; or
    `cost/tokens`, `cost/lm_calls` or `cost/seconds`, those of an answer."""
    direction: Literal["maximize", "minimize"] | None = None
    """By default as the measure is better; costs and ranks are better where they are less."""

    @property
    def sign(self) -> int:
        """1 if more is better, else -1."""
        return 1 if (self.direction == "maximize" if self.direction else higher_is_better(self.measure)) else -1

    @property
    def towards(self) -> Literal["maximize", "minimize"]:
        """The direction, by default as the measure is better."""
        return "maximize" if self.sign > 0 else "minimize"


class ConstraintConfig(BaseModel):
    """What a trial must keep to."""

    model_config = CLOSED

    measure: str = Field(pattern=r"^[^/]+/.+$")
    """See the objectives."""
    at_most: float | None = None
    """The mean over questions is not above this."""
    at_least: float | None = None
    """The mean over questions is not below this."""

    @model_validator(mode="after")
    def _says_something(self) -> ConstraintConfig:
        if self.at_most is None and self.at_least is None:
            raise ValueError("say at_most or at_least")
        return self


class SamplerConfig(BaseModel):
    """Who chooses the points."""

    model_config = CLOSED

    name: SamplerName = "tpe"
    """One of Optuna's, or `grid`."""
    seed: int = 0
    """With the same seed, one worker makes the same trials, however often it is killed."""
    startup: PositiveInt = 10
    """Random trials before `tpe` and `gp` begin to learn."""


class PruningConfig(BaseModel):
    """Successive halving over questions. A trial answers the first questions, and only if it is among the
    better ones of those that did, more: all answer the same questions in the same order."""

    model_config = CLOSED

    enabled: bool = True
    """Else each trial answers all."""
    first: PositiveInt = 8
    """Questions of the smallest set."""
    growth: Annotated[int, Field(ge=2)] = 2
    """By how much each set is larger than the one before, and of how many trials one goes on to it."""


class StopConfig(BaseModel):
    """When the sweep ends, whichever comes first. The same command continues it, with other limits."""

    model_config = CLOSED

    trials: PositiveInt = 50
    """Of all workers together, pruned ones counted in."""
    minutes: PositiveFloat | None = None
    """That a worker takes, from its own start."""
    tokens: PositiveInt | None = None
    """Paid for by all workers together."""
    no_improvement: PositiveInt | None = None
    """Finished trials in a row of which none is better, or on the front of several objectives."""


class SweepData(DatasetConfig):
    """Which questions trials are compared on."""

    split: str = "validation"
    """`train`, `validation`, `test` or `all`. What is compiled is compiled on train and validation."""


class HeldOutConfig(BaseModel):
    """Which questions the best is measured on again."""

    model_config = CLOSED

    split: str = "test"
    """Of the same dataset."""
    limit: PositiveInt | None = None
    """Questions, drawn in turn from each subset and type; by default all."""


class CompileSection(BaseModel):
    """The teleprompters that the knob `teleprompter` chooses among. Each compiles the program once, on train
    and validation, whatever the number of trials that use it."""

    model_config = CLOSED

    optimizers: dict[Annotated[str, Field(pattern=r"^[\w+-]+$")], dict[str, Any]] = Field(min_length=1)
    """Options by the optimizer's name; `none`, which leaves the program as it is, needs none."""
    metrics: WeightedMetrics = ()
    """What is compiled against; by default as for `typedrag compile`."""
    modules: str = ""
    """What of the program is compiled; by default all of it."""
    budget: BudgetConfig = BudgetConfig()
    """How much each may take."""

    @property
    def against(self) -> tuple[WeightedMetric, ...]:
        """What is compiled against: the metrics, by default those of `DEFAULT_OBJECTIVE`."""
        return self.metrics or default_metrics()


class SweepConfig(BaseModel):
    """A search space, and what to look for in it."""

    model_config = CLOSED

    kind: Literal["program"] = "program"
    """Knobs of a program. The other kind is `weights`."""
    name: str = Field(default="sweep", pattern=r"^[\w.+-]+$")
    """Of the study."""
    program: ProgramConfig
    """Whose knobs are turned. What is not turned stays as it is here."""
    knobs: dict[str, KnobConfig] = Field(min_length=1)
    """What is turned, and to which values: nothing for the declared range, a list of values, or a range."""
    objectives: Annotated[
        tuple[Annotated[ObjectiveConfig, BeforeValidator(lambda v: {"measure": v} if isinstance(v, str) else v)], ...],
        Field(min_length=1, max_length=4),
    ] = (ObjectiveConfig(measure=SCORE),)
    """What to look for, by default the weighted mean of all metrics; of several, the front of trials that no other
    beats in all."""
    constraints: tuple[ConstraintConfig, ...] = ()
    """What to keep to. Trials that do not come after all that do."""
    sampler: SamplerConfig = SamplerConfig()
    """Who chooses the points."""
    pruning: PruningConfig = PruningConfig()
    """When trials are ended early."""
    stop: StopConfig = StopConfig()
    """When the sweep ends."""
    dataset: SweepData
    """The questions; a limit is best, since each trial that is not pruned answers all."""
    held_out: HeldOutConfig = HeldOutConfig()
    """The questions that `typedrag sweep best` measures the best on."""
    metrics: WeightedMetrics = ()
    """What the answers are measured by: names, or names with options and weights in `objective/score`; by default a
    mix that fabrications do not win."""
    compile: CompileSection | None = None
    """Needed by the knob `teleprompter` alone."""
    lm: LMConfig = LMConfig()
    """Which answers."""
    scorer: LMConfig | None = None
    """The LM behind judges; not needed where no metric asks one."""
    index: Path | None = None
    """Where passages come from, for programs that retrieve; by default as for `typedrag ask`."""
    threads: PositiveInt = 16
    """Questions and judgments of a trial under way at once."""
    calls_in_flight: PositiveInt = 16
    """LM calls of a worker at once, whatever the threads that ask."""
    failures: float = Field(default=CapsConfig().failures, ge=0, le=1)
    """The share of a trial's answers or judgments that fail, above which it is pruned."""
    storage: str | None = None
    """`postgresql://USER@HOST/NAME`, for workers on several machines; by default a journal in `--out`."""
    heartbeat: PositiveFloat = 10.0
    """Seconds; a worker that has not been heard of for three of them is dead, and its trial is retried."""
    tracking: TrackingConfig = TrackingConfig()
    """MLflow."""

    @property
    def measured_by(self) -> tuple[WeightedMetric, ...]:
        """The metrics, by default those of `DEFAULT_OBJECTIVE`."""
        return self.metrics or default_metrics()

    @property
    def weights(self) -> dict[str, float]:
        """Of the metrics, in `objective/score`."""
        return {metric.name: metric.weight for metric in self.measured_by}

    @model_validator(mode="after")
    def _measures_differ(self) -> SweepConfig:
        measures = [objective.measure for objective in self.objectives]
        if len(set(measures)) < len(measures):
            raise ValueError("an objective is named twice")
        return self


class WeightsSampler(SamplerConfig):
    """Who chooses the weights."""

    name: SamplerName = "random"
    """Samplers that learn, `tpe`, `nsga2` and `gp`, search anew for each fold, which takes longer."""
    values: tuple[float, ...] = (-1.0, -0.5, 0.0, 0.5, 1.0)
    """Of each weight, for `grid`: a grid such as the paper's best weights lie on."""


class WeightsConfig(BaseModel):
    """Which weights of core, background and follow-up coverage predict best what people, or another judge, say of
    answers (sub-question coverage, section 4)."""

    model_config = CLOSED

    kind: Literal["weights"]
    """Weights of sub-question coverage."""
    name: str = Field(default="weights", pattern=r"^[\w.+-]+$")
    """Of the run in MLflow."""
    dataset: DataConfig | None = None
    """Pairs of answers with a preference (`webgpt`, `pairs`), or questions whose references have labels."""
    limit: PositiveInt | None = None
    """Questions of the dataset, drawn in turn from each subset and type; by default all."""
    candidates: Annotated[int, Field(ge=2)] = 4
    """Labelled references of a question that are judged, at most; both answers of a pair always are."""
    runs: tuple[Path, ...] = ()
    """Instead of a dataset, folders of runs over the same questions that have measured coverage."""
    target: str | None = Field(default=None, pattern=r"^[^/]+/.+$")
    """Of runs, the measure that weights are to predict, such as `linkage/expected_rank`."""
    rated: Path | None = None
    """Instead of both, the file `rated.jsonl` of an earlier sweep, or one of your own."""
    lm_judge: bool = True
    """Whether the LM is also asked which of two answers is better, as a baseline. Of pairs alone."""
    cite: Cite = DEFAULT_CITE
    """How the coverage judge shows what answers a sub-question; see the metric `coverage`."""
    sub_questions_per_call: PositiveInt = 10
    """That the coverage judge is asked about, at most."""
    scorer: LMConfig = LMConfig()
    """The LM behind the judges."""
    threads: PositiveInt = 16
    """Judgments under way at once."""
    judgments: Path | None = None
    """The file that judgments are kept in; by default in `--out`."""
    sampler: WeightsSampler = WeightsSampler()
    """Who chooses the weights."""
    trials: PositiveInt = 2000
    """Weights that are tried; of a grid, all."""
    folds: Annotated[int, Field(ge=2)] = 5
    """Of the cross-validation. A question's answers are in one fold."""
    seed: NonNegativeInt = 0
    """Of the folds and of the intervals' resamples."""
    tracking: TrackingConfig = TrackingConfig()
    """MLflow."""

    @model_validator(mode="after")
    def _has_one_source(self) -> WeightsConfig:
        if sum((self.dataset is not None, bool(self.runs), self.rated is not None)) != 1:
            raise ValueError("name a dataset, runs or a file of rated answers")
        if bool(self.runs) != (self.target is not None):
            raise ValueError("runs have a target, and nothing else has")
        return self
