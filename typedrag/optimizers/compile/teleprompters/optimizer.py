"""What all optimizers have in common, and how they are found by name."""

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
