"""Configuration of a compile, from flags or a YAML file; unknown keys are refused."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, PositiveFloat, PositiveInt

from typedrag.experiments import config as configs
from typedrag.experiments.config import CLOSED, DataConfig, LMConfig, MetricConfig, ProgramConfig

BudgetName = Literal["light", "medium", "heavy"]


class WeightedMetric(MetricConfig):
    """A metric to compile against, and its weight."""

    weight: PositiveFloat = 1.0
    """The weight in the mean of all metrics, without those that cannot measure the question."""


WeightedMetrics: TypeAlias = Annotated[
    tuple[Annotated[WeightedMetric, BeforeValidator(configs.named)], ...], configs.distinct("a metric is named twice")
]
"""Each once; a name alone is enough."""


def default_metrics() -> tuple[WeightedMetric, ...]:
    from typedrag.metrics import DEFAULT_OBJECTIVE, parse_objective  # they bring DSPy, as do targets

    return tuple(WeightedMetric(name=n, weight=w) for n, w in parse_objective(DEFAULT_OBJECTIVE).items())


class OptimizerConfig(BaseModel):
    """An optimizer and its own options."""

    model_config = CLOSED

    name: str
    """The optimizer's name, such as `gepa`, `mipro` or, of DSPy, `dspy:COPRO`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the optimizer."""


class BudgetConfig(BaseModel):
    """Limits after which the compile stops with the best so far. The test is not counted."""

    model_config = CLOSED

    name: BudgetName = "light"
    """The name of the budget, which also chooses the optimizer's options that are not set."""
    lm_calls: PositiveInt | None = None
    """The most calls of all LMs together, also those that name types of questions; by default those of the name."""
    tokens: PositiveInt | None = None
    """The most tokens, read and written; by default unlimited."""


class CompileConfig(configs.ExperimentConfig):
    """A program to compile, an optimizer, data and metrics."""

    program: Annotated[
        ProgramConfig, BeforeValidator(lambda v: {"program": "typed_rag", **v} if isinstance(v, dict) else v)
    ] = ProgramConfig(program="typed_rag")
    """The program to compile, by default `typed_rag`; judges need none."""
    modules: str = ""
    """The modules to compile: names with commas between, a module that learns from labels of its own, such as
    `type-classifier-alone`, or a judge; by default the whole program."""
    optimizer: OptimizerConfig
    """The optimizer."""
    budget: BudgetConfig = BudgetConfig()
    """Limits of the compile."""
    dataset: DataConfig
    """The dataset; its splits are used to compile, to choose and to test."""
    test_limit: PositiveInt | None = None
    """Questions of the test split, drawn in turn from each subset and type; by default all."""
    metrics: WeightedMetrics = ()
    """What is compiled against; by default a mix that fabrications do not win, or the labels where they say it."""
    prompt_lm: LMConfig | None = None
    """The LM that writes instructions and reflects; by default `lm`. Without a `spec`, `lm` with these settings."""
    teacher_lm: LMConfig | None = None
    """The LM that makes demonstrations; by default `lm`. Without a `spec`, `lm` with these settings."""
    seed: int = 0
    """The seed of all random choices."""
    replies: Path | None = None
    """The file of LM replies, judges' too; by default in the folder of the compile."""
    register_as: str | None = None
    """The name of a registered model in MLflow; the compiled program becomes a version of it. By default none."""

    @property
    def against(self) -> tuple[WeightedMetric, ...]:
        """The metrics to compile against, by default `DEFAULT_OBJECTIVE`; none for a module with labels of its own."""
        from typedrag.optimizers.compile.targets import ALONE

        return self.metrics or (() if self.modules in ALONE else default_metrics())

    def test_evaluation(self, *programs: ProgramConfig) -> configs.EvaluationConfig:
        return configs.EvaluationConfig(
            programs=programs,
            dataset=configs.DatasetConfig(**dict(self.dataset), split="test", limit=self.test_limit),
            metrics=tuple(MetricConfig(name=m.name, options=m.options) for m in self.against),
            lm=self.lm,
            scorer=self.scorer,
            index=self.index,
            threads=self.threads,
            calls_in_flight=self.calls_in_flight,
            caps=configs.CapsConfig(failures=1.0),
            replies=self.replies,
            tracking=self.tracking.disabled(),
        )
