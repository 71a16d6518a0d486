"""The base class of all optimizers, and their registry by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import dspy
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from typedrag.errors import InputError
from typedrag.optimizers.compile.teleprompters.budget import BUDGET_NAMES, BudgetName
from typedrag.optimizers.compile.teleprompters.compilation import Compilation, CompileRequest, CostEstimate
from typedrag.registry import Registry


def by_budget(light: int, medium: int, heavy: int, **bounds: Any) -> Any:
    """An option whose default is chosen by the budget."""
    return Field(light, json_schema_extra={"by_budget": [light, medium, heavy]}, **bounds)


class OptimizerSettings(BaseModel):
    """The options of every optimizer."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    train_examples: PositiveInt = by_budget(50, 150, 500)
    """Training examples to use, drawn in turn from each question type; by budget 50, 150 or 500."""
    validation_examples: PositiveInt = by_budget(50, 100, 300)
    """Validation examples to use, drawn likewise; by budget 50, 100 or 300."""

    @classmethod
    def chosen(cls, budget: BudgetName, options: Mapping[str, Any]) -> Self:
        """The options with the defaults of a budget.

        Example:
            >>> OptimizerSettings.chosen("medium", {"train_examples": 20})
            OptimizerSettings(train_examples=20, validation_examples=100)
        """
        extras: dict[str, Any] = {name: field.json_schema_extra for name, field in cls.model_fields.items()}
        place = BUDGET_NAMES.index(budget)
        by_name = {name: extra["by_budget"][place] for name, extra in extras.items() if extra}
        return cls.model_validate({**by_name, **{name: value for name, value in options.items() if value is not None}})


class UntrainedSettings(OptimizerSettings):
    """The options of an optimizer that uses no training examples."""

    train_examples: PositiveInt = 1
    """Not used by this optimizer."""


class Optimizer(ABC):
    """Makes a program better by a metric.

    Args:
        settings: Its own options; see `Settings` of the class.
        budget: The name of the budget that chose the defaults of options.
    """

    name: ClassVar[str]
    """The name that users, results and MLflow use."""
    about: ClassVar[str]
    """What it does, in a line."""
    Settings: ClassVar[type[OptimizerSettings]] = OptimizerSettings
    """The class of its options."""

    def __init__(self, settings: OptimizerSettings | None = None, budget: BudgetName = "light") -> None:
        self.settings = settings or self.Settings()
        self.budget = budget

    def check(self, request: CompileRequest) -> None:  # noqa: B027 - most refuse nothing
        """Refuse a request that this optimizer cannot compile, before anything is spent.

        Raises:
            InputError: If it cannot.
        """

    @abstractmethod
    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate the cost, without asking an LM."""

    @abstractmethod
    def compile(self, run: Compilation) -> dspy.Module:
        """Return the best program; evaluations on the validation set are recorded on the way.

        Raises:
            Stopped: If the budget is spent or the system fails.
        """

    def sizes(self, request: CompileRequest) -> tuple[int, int]:
        """The numbers of training and validation examples to use."""
        most = self.settings
        return min(most.train_examples, len(request.trainset)), min(most.validation_examples, len(request.valset))


_OPTIMIZERS: Registry[Optimizer] = Registry(
    "optimizer", gone={"ensemble": "bootstrap-random-search", "knn-few-shot": "bootstrap"}
)
optimizer = _OPTIMIZERS.add
optimizer_names = _OPTIMIZERS.names
optimizer_class = _OPTIMIZERS.find


def build_optimizer(name: str, options: Mapping[str, Any] | None = None, budget: BudgetName = "light") -> Optimizer:
    """Build the optimizer with this name and these options; the budget's name chooses the others.

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
