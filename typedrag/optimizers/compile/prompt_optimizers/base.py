"""The base class of optimizers, their requests and options, and their registry by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import dspy
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from typedrag.core.errors import InputError
from typedrag.core.registry import Registry
from typedrag.optimizers.compile.prompt_optimizers.candidates import Candidate, CandidateLog, Metric, Scoring
from typedrag.optimizers.compile.prompt_optimizers.limiter import CallLimiter

BUDGET_CALLS: dict[str, int] = {"light": 3_000, "medium": 12_000, "heavy": 50_000}
"""The most LM calls by the name of the budget. `light` is enough for a dozen candidates on 50 questions, at five calls
each."""
_LEAST_THRESHOLD = 0.001
"""The least threshold: DSPy takes 0 for none, and then any prediction of a metric for success."""


@dataclass(frozen=True, kw_only=True)
class CompileRequest:
    """A student to compile, its data and metric, and the LMs to use."""

    student: dspy.Module  # the program to make better; it is not changed itself
    trainset: Sequence[dspy.Example]  # examples for demonstrations, rules and feedback
    valset: Sequence[dspy.Example]  # examples that choose candidates. Neither set has an example of the test split
    metric: Metric  # LMs of its own should be metered, or their cost is not counted
    task_lm: dspy.LM  # the LM that the student is compiled for
    log_dir: Path  # the folder of this compile alone: all that is needed to resume, and the best so far
    teacher_lm: dspy.LM | None = None  # the LM that makes demonstrations; by default the task's
    prompt_lm: dspy.LM | None = None  # the LM that writes instructions and reflects; by default the task's
    threads: int = 8  # examples run at once
    seed: int = 0  # the seed that draws examples and candidates
    # other settings that the compile depends on, as JSON values: the index, the metric's options
    depends_on: Mapping[str, Any] = field(default_factory=dict)
    redact: Callable[[str], str] = str  # hides keys and addresses in the log of DSPy


@dataclass(frozen=True, kw_only=True)
class Compilation(CompileRequest):
    """A request under way, within the LMs, the limiter and the cache of the compile.

    Its sets hold the examples that are used, in turn from each question type; the base has been evaluated on
    the validation set. All its LMs are set, and charged.
    """

    teacher_lm: dspy.LM
    prompt_lm: dspy.LM
    scoring: Scoring
    limiter: CallLimiter
    log: CandidateLog

    @property
    def teacher_settings(self) -> dict[str, Any]:
        """The teacher's settings for DSPy's optimizers, with a new LM each time: SIMBA changes it."""
        return {"lm": self.teacher_lm.copy()}

    def threshold(self, score: float | None = None) -> float:
        """The least score of a run that makes a demonstration: the given one, else the base's mean."""
        return max(self.scoring.base_mean if score is None else score, _LEAST_THRESHOLD)

    def evaluate(self, program: dspy.Module, how: str) -> Candidate:
        """Evaluate a program on the validation set and record it with its origin, unless it is recorded already."""
        if self.scoring.base is not None and (known := self.log.find_evaluation(program)):
            return known
        evaluate = dspy.Evaluate(devset=list(self.valset), metric=self.scoring, num_threads=self.threads)
        with self.log.origin(how):
            evaluate(program)
        candidate = self.log.find_evaluation(program)
        assert candidate is not None, "an evaluation on the validation set is recorded"
        return candidate


def by_budget(light: int, medium: int, heavy: int, **bounds: Any) -> Any:
    return Field(light, json_schema_extra={"by_budget": [light, medium, heavy]}, **bounds)


class Optimizer(BaseModel, ABC):
    """Makes a program better by a metric; its fields are its options."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: ClassVar[str]
    """The name that users, results and MLflow use."""
    about: ClassVar[str]
    """What it does, in a line."""

    train_examples: PositiveInt = by_budget(50, 150, 500)
    """Training examples to use, drawn in turn from each question type; by budget 50, 150 or 500."""
    validation_examples: PositiveInt = by_budget(50, 100, 300)
    """Validation examples to use, drawn likewise; by budget 50, 100 or 300."""

    def check(self, request: CompileRequest) -> None:
        """Refuse a request that this optimizer cannot compile, before anything is spent.

        Raises:
            InputError: If it cannot.
        """

    def planned_runs(self, train: int, validation: int) -> int | None:
        """The number of runs of the program that it plans for so many examples, rather too high; None if that is not
        known. The base is always run on the validation examples."""
        return None

    @abstractmethod
    def compile(self, run: Compilation) -> dspy.Module:
        """Return the best program; evaluations on the validation set are recorded on the way.

        Raises:
            Stopped: If a limit is reached or the system fails.
        """

    def sizes(self, request: CompileRequest) -> tuple[int, int]:
        return min(self.train_examples, len(request.trainset)), min(self.validation_examples, len(request.valset))


_OPTIMIZERS: Registry[Optimizer] = Registry("optimizer")
optimizer = _OPTIMIZERS.add
optimizer_names = _OPTIMIZERS.names
optimizer_class = _OPTIMIZERS.find


def build_optimizer(name: str, options: Mapping[str, Any] | None = None, budget: str = "light") -> Optimizer:
    """Build the optimizer with this name and these options; the budget's name chooses the others.

    `dspy:NAME` is the optimizer of that name in DSPy; see `any_of_dspy`.

    Raises:
        InputError: If no optimizer has that name, or it does not know an option or its value.
    """
    from typedrag.optimizers.compile.prompt_optimizers.any_of_dspy import dspy_optimizer

    cls = dspy_optimizer(name) or optimizer_class(name)
    extras: dict[str, Any] = {option: field.json_schema_extra for option, field in cls.model_fields.items()}
    place = list(BUDGET_CALLS).index(budget)
    chosen = {option: extra["by_budget"][place] for option, extra in extras.items() if extra}
    chosen |= {option: value for option, value in (options or {}).items() if value is not None}
    try:
        return cls.model_validate(chosen)
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(str(part) for part in first["loc"])
        known = ", ".join(cls.model_fields)
        raise InputError(f"optimizer '{name}', option {option}: {first['msg']}", f"Its options: {known}") from None
