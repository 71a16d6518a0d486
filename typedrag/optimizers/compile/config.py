"""What a compile is made of: a closed model, as flags or a YAML file give it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PositiveFloat, PositiveInt

from typedrag.experiments.evaluate.config import (
    CLOSED,
    CapsConfig,
    DataConfig,
    DatasetConfig,
    EvaluationConfig,
    LMConfig,
    MetricConfig,
    ProgramConfig,
    TrackingConfig,
    distinct,
    named,
)
from typedrag.metrics import DEFAULT_OBJECTIVE, parse_objective
from typedrag.optimizers.compile.targets import ALONE
from typedrag.optimizers.compile.teleprompters import BudgetName


class WeightedMetric(MetricConfig):
    """A metric of what is compiled against, and its weight."""

    weight: PositiveFloat = 1.0
    """In the mean of all; a metric that cannot measure a question is left out of it."""


WeightedMetrics: TypeAlias = Annotated[
    tuple[Annotated[WeightedMetric, BeforeValidator(named)], ...], AfterValidator(distinct)
]
"""Each once; a name alone is enough."""


def default_metrics() -> tuple[WeightedMetric, ...]:
    """Those of `DEFAULT_OBJECTIVE`."""
    return tuple(WeightedMetric(name=n, weight=w) for n, w in parse_objective(DEFAULT_OBJECTIVE).items())


class OptimizerConfig(BaseModel):
    """A teleprompter and its own options."""

    model_config = CLOSED

    name: str
    """Such as `gepa` or `mipro`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """As its settings take them."""


class BudgetConfig(BaseModel):
    """After how much the compile stops with the best so far. The test is not counted in."""

    model_config = CLOSED

    name: BudgetName = "light"
    """Also chooses the options of the optimizer that are not set."""
    lm_calls: PositiveInt | None = None
    """Of all LMs together; by default that of the name."""
    tokens: PositiveInt | None = None
    """Read and written; by default there is no such limit."""


def _typed_rag(given: Any) -> Any:
    return {"program": "typed_rag", **given} if isinstance(given, dict) else given


class CompileConfig(BaseModel):
    """A program, a teleprompter, data and what is compiled against."""

    model_config = CLOSED

    program: Annotated[ProgramConfig, BeforeValidator(_typed_rag)] = ProgramConfig(program="typed_rag")
    """What is compiled; judges need none. By default it is `typed_rag`."""
    modules: str = ""
    """What of it: names of modules with commas between, `in-order`, a module by labels of its own, such
    as `type-classifier-alone`, or a judge; by default all of the program."""
    optimizer: OptimizerConfig
    """How."""
    budget: BudgetConfig = BudgetConfig()
    """How much it may take."""
    dataset: DataConfig
    """Whose splits it is compiled, chosen and tested on."""
    test_limit: PositiveInt | None = None
    """Questions of the test split, drawn in turn from each subset and type; by default all."""
    metrics: WeightedMetrics = ()
    """What is compiled against; by default a mix that fabrications do not win, or the labels where they say it."""
    lm: LMConfig = LMConfig()
    """The LM that it is compiled for."""
    prompt_lm: LMConfig | None = None
    """Writes instructions and reflects; by default the same. Without a `spec` it is `lm`, asked otherwise."""
    teacher_lm: LMConfig | None = None
    """Makes demonstrations; by default the same. Without a `spec` it is `lm`, asked otherwise."""
    scorer: LMConfig | None = None
    """The LM behind judges; not needed where no metric asks one."""
    index: Path | None = None
    """Where passages come from, for programs that retrieve; by default as for `typedrag ask`."""
    threads: PositiveInt = 16
    """Questions under way at once."""
    calls_in_flight: PositiveInt = 16
    """LM calls at once, whatever the threads that ask."""
    seed: int = 0
    """Of everything that is drawn."""
    judgments: Path | None = None
    """The file that judgments are kept in; by default in the folder of the compile."""
    tracking: TrackingConfig = TrackingConfig()
    """MLflow."""
    register_as: str | None = None
    """The name of the registered model in MLflow that the compiled program is a version of; by default none."""

    @property
    def against(self) -> tuple[WeightedMetric, ...]:
        """What is compiled against: the metrics, or by default `DEFAULT_OBJECTIVE`; none where labels say it."""
        return self.metrics or (() if self.modules in ALONE else default_metrics())

    def test_of(self, *programs: ProgramConfig) -> EvaluationConfig:
        """The evaluation of programs on the test split."""
        return EvaluationConfig(
            programs=programs,
            dataset=DatasetConfig(**dict(self.dataset), split="test", limit=self.test_limit),
            metrics=tuple(MetricConfig(name=m.name, options=m.options) for m in self.against),
            lm=self.lm,
            scorer=self.scorer,
            index=self.index,
            threads=self.threads,
            calls_in_flight=self.calls_in_flight,
            caps=CapsConfig(failures=1.0),
            judgments=self.judgments,
            tracking=TrackingConfig(enabled=False),
        )
