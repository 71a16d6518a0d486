"""Several optimizers in sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import dspy
from dspy.teleprompt import Teleprompter
from pydantic import Field

from typedrag.errors import InputError
from typedrag.optimizers.compile.teleprompters.compilation import Compilation, CompileRequest, CostEstimate
from typedrag.optimizers.compile.teleprompters.optimizer import Optimizer, OptimizerSettings, build_optimizer, optimizer

_SIZES = set(OptimizerSettings.model_fields)
"""Options of every optimizer, which steps inherit from `better-together`."""


class BetterTogetherSettings(OptimizerSettings):
    """Options of `better-together`."""

    steps: tuple[str, ...] = ("bootstrap-random-search", "gepa")
    """The names of optimizers, each of which begins with the program of the one before it."""
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Options of these optimizers, by name."""
    shuffle: bool = True
    """Give each step the training examples in another order."""


@optimizer
class BetterTogether(Optimizer):
    """Runs several optimizers one after the other and keeps the best of their programs (`dspy.BetterTogether`)."""

    name: ClassVar[str] = "better-together"
    about: ClassVar[str] = "several optimizers in sequence"
    Settings = BetterTogetherSettings
    settings: BetterTogetherSettings

    def check(self, request: CompileRequest) -> None:
        """Refuse unknown steps, and requests that a step refuses."""
        if not self.settings.steps:
            raise InputError("no step is named", "Name optimizers: steps")
        if strangers := self.settings.options.keys() - set(self.settings.steps):
            raise InputError(f"options are given for '{min(strangers)}', which is no step", "Name it as a step")
        for name, own in self.settings.options.items():
            if sizes := _SIZES & own.keys():
                raise InputError(
                    f"step '{name}' has {min(sizes)} of its own, and all steps have the same examples",
                    f"Give it as an option of {self.name}",
                )
        for step in self._steps():
            step.check(request)

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """The sum of the steps' estimates."""
        of_steps = [step.estimate(request) for step in self._steps()]
        return CostEstimate.of(request, sum(e.runs for e in of_steps), sum(e.proposals for e in of_steps))

    def compile(self, run: Compilation) -> dspy.Module:
        """The best program of any step."""
        steps = {f"step{n}": _Step(step, run, n) for n, step in enumerate(self._steps(), 1)}
        student = run.student.deepcopy()
        student.set_lm(run.task_lm)  # DSPy asks for it
        teleprompter = dspy.BetterTogether(metric=run.scoring, **steps)
        with run.trajectory.saying("in sequence"):
            compiled = teleprompter.compile(
                student,
                trainset=list(run.trainset),
                valset=list(run.valset),
                num_threads=run.threads,
                seed=run.seed,
                strategy=" -> ".join(steps),
                shuffle_trainset_between_steps=self.settings.shuffle,
            )
        for step in steps.values():
            step.raise_failure()
        return compiled

    def _steps(self) -> list[Optimizer]:
        settings = self.settings
        if self.name in settings.steps:
            raise InputError("better-together cannot be a step of itself", "Name other optimizers")
        sizes = settings.model_dump(include=_SIZES)
        return [build_optimizer(n, {**settings.options.get(n, {}), **sizes}, self.budget) for n in settings.steps]


class _Step(Teleprompter):
    """An optimizer as a teleprompter of DSPy, which keeps its failure: DSPy only logs it, and ends."""

    def __init__(self, step: Optimizer, run: Compilation, number: int) -> None:
        super().__init__()
        self._optimizer, self._run, self._number = step, run, number
        self._failure: Exception | None = None

    def compile(self, student: dspy.Module, *, trainset: list[dspy.Example], valset: list[dspy.Example]) -> dspy.Module:
        run, theirs = self._run, student.get_lm()
        lm = run.task_lm if theirs.model == run.task_lm.model else theirs  # an earlier step has fine-tuned it
        run = replace(
            run,
            student=run.trajectory.clean(student),
            trainset=trainset,
            task_lm=lm,
            seed=run.seed + self._number,
        )
        try:
            with run.trajectory.saying(f"step {self._number}"), dspy.context(lm=lm):
                program = self._optimizer.compile(run)
        except Exception as error:
            self._failure = error
            raise
        compiled = run.trajectory.clean(program)
        compiled.set_lm(program.get_lm() or lm)
        return compiled

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
