"""What all optimizers have in common, and how they are found by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import dspy
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from typedrag.errors import InputError
from typedrag.experiments.balance import question_type_of
from typedrag.optimizers.compile.teleprompters.budget import BUDGET_NAMES, BudgetName
from typedrag.optimizers.compile.teleprompters.scoring import Metric
from typedrag.registry import Registry

if TYPE_CHECKING:
    from typedrag.optimizers.compile.teleprompters.compilation import Compilation

TypeOf = Callable[[dspy.Example], str]


@dataclass(frozen=True)
class RunCost:
    """What it takes on average to run a program for one example and to judge what comes out."""

    lm_calls: float
    tokens: float

    @classmethod
    def assumed(cls, student: dspy.Module) -> RunCost:
        """A guess, where none was measured: no example reaches more than four predictors, and a judge is one call.

        Example:
            >>> RunCost.assumed(dspy.Predict("question -> answer"))
            RunCost(lm_calls=2, tokens=2000)
        """
        calls = min(len(student.predictors()), 4) + 1
        return cls(calls, 1_000 * calls)


@dataclass(frozen=True, kw_only=True)
class CompileRequest:
    """What is to be compiled, against what, and by which LMs.

    Attributes:
        student: Made better. It is not changed itself.
        trainset: Where demonstrations, rules and feedback come from.
        valset: What candidates are chosen by. Neither has an example of the test split.
        metric: See `scoring.Metric`. LMs of its own should be metered (see `spending`), or what they
            take is not counted.
        task_lm: The LM that the student is compiled for.
        log_dir: All that is needed to resume, and the best so far; of this compile alone.
        teacher_lm: Makes demonstrations; by default the task's.
        prompt_lm: Writes instructions and reflects; by default the task's.
        threads: Examples that are run at once.
        seed: Another one draws other examples and candidates.
        type_of: The question type by which examples are balanced: by default that of its label, else
            the one predicted, else what the linear classifier takes it for.
        run_cost: What estimates are made from; assumed if it is not known.
        depends_on: What else makes it this compile, as JSON values: the index, the metric's options.
        redact: What hides keys and addresses in the log of DSPy.
    """

    student: dspy.Module
    trainset: Sequence[dspy.Example]
    valset: Sequence[dspy.Example]
    metric: Metric
    task_lm: dspy.LM
    log_dir: Path
    teacher_lm: dspy.LM | None = None
    prompt_lm: dspy.LM | None = None
    threads: int = 8
    seed: int = 0
    type_of: TypeOf = question_type_of
    run_cost: RunCost | None = None
    depends_on: Mapping[str, Any] = field(default_factory=dict)
    redact: Callable[[str], str] = str


@dataclass(frozen=True)
class CostEstimate:
    """About what a compile takes if nothing stops it; rather too much, since what the cache answers is counted.

    Attributes:
        runs: Of the program, each with a judgment, beginning with the base on the validation set.
        proposals: LM calls that write instructions.
        lm_calls: Of both; so are `tokens`.
    """

    runs: int
    proposals: int
    lm_calls: int
    tokens: int

    _TOKENS_PER_PROPOSAL: ClassVar[int] = 3_000

    @classmethod
    def of(cls, request: CompileRequest, runs: int, proposals: int = 0) -> CostEstimate:
        """For so many runs and proposals."""
        cost = request.run_cost or RunCost.assumed(request.student)
        return cls(
            runs,
            proposals,
            round(runs * cost.lm_calls + proposals),
            round(runs * cost.tokens + proposals * cls._TOKENS_PER_PROPOSAL),
        )


def by_budget(light: int, medium: int, heavy: int, **bounds: Any) -> Any:
    """An option whose value the budget chooses where it is not set."""
    return Field(light, json_schema_extra={"by_budget": [light, medium, heavy]}, **bounds)


class OptimizerSettings(BaseModel):
    """The options of every optimizer."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    train_examples: PositiveInt = by_budget(50, 150, 500)
    """That are used of the training set, drawn in turn from each question type; by budget 50, 150 or 500."""
    validation_examples: PositiveInt = by_budget(50, 100, 300)
    """That are used of the validation set, drawn likewise; by budget 50, 100 or 300."""

    @classmethod
    def chosen(cls, budget: BudgetName, given: Mapping[str, Any]) -> Self:
        """The given options, the others by the budget.

        Example:
            >>> OptimizerSettings.chosen("medium", {"train_examples": 20})
            OptimizerSettings(train_examples=20, validation_examples=100)
        """
        extras: dict[str, Any] = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        place = BUDGET_NAMES.index(budget)
        by_name = {name: extra["by_budget"][place] for name, extra in extras.items() if extra}
        return cls.model_validate({**by_name, **{name: value for name, value in given.items() if value is not None}})


class UntrainedSettings(OptimizerSettings):
    """The options of an optimizer that uses no training examples."""

    train_examples: PositiveInt = 1
    """Without use here."""


class Optimizer(ABC):
    """Makes a program better by a metric.

    Args:
        settings: Its own options; see `Settings` of the class.
        budget: The name of the budget that has chosen those that are not set.
    """

    name: ClassVar[str]
    """As users, results and MLflow call it."""
    about: ClassVar[str]
    """What it does, in a line."""
    Settings: ClassVar[type[OptimizerSettings]] = OptimizerSettings
    """Its options."""

    def __init__(self, settings: OptimizerSettings | None = None, budget: BudgetName = "light") -> None:
        self.settings = settings or self.Settings()
        self.budget = budget

    def check(self, request: CompileRequest) -> None:  # noqa: B027 - most refuse nothing
        """Refuse what cannot be compiled so, before anything is spent.

        Raises:
            InputError: If it cannot.
        """

    @abstractmethod
    def estimate(self, request: CompileRequest) -> CostEstimate:
        """About what it will take; asks no LM."""

    @abstractmethod
    def compile(self, run: Compilation) -> dspy.Module:
        """The best program it finds. All it evaluates on the validation set is recorded on the way.

        Raises:
            Stopped: If the budget is spent or the system fails.
        """

    def sizes(self, request: CompileRequest) -> tuple[int, int]:
        """Training and validation examples that are used."""
        wanted = self.settings
        return min(wanted.train_examples, len(request.trainset)), min(wanted.validation_examples, len(request.valset))


_OPTIMIZERS: Registry[Optimizer] = Registry(
    "optimizer", gone={"ensemble": "bootstrap-random-search", "knn-few-shot": "bootstrap"}
)
optimizer = _OPTIMIZERS.add
optimizer_names = _OPTIMIZERS.names
optimizer_class = _OPTIMIZERS.find


def build_optimizer(name: str, options: Mapping[str, Any] | None = None, budget: BudgetName = "light") -> Optimizer:
    """The optimizer of this name with its own options, those that are not given by the name of the budget.

    Raises:
        InputError: If no optimizer has that name, or it does not know an option or its value.
    """
    cls = optimizer_class(name)
    try:
        return cls(cls.Settings.chosen(budget, options or {}), budget)
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(str(part) for part in first["loc"])
        known = ", ".join(cls.Settings.model_fields)
        raise InputError(f"optimizer '{name}', option {option}: {first['msg']}", f"Its options: {known}") from None
