"""MIPROv2: instructions that the prompt model writes, and demonstrations, chosen together."""

from __future__ import annotations

from typing import ClassVar

import dspy
from pydantic import Field, NonNegativeInt, PositiveInt

from typedrag.optimizers.compile.teleprompters.dspy_internals import MIPROv2
from typedrag.optimizers.compile.teleprompters.few_shot import BootstrapSettings, demonstration_sets
from typedrag.optimizers.compile.teleprompters.optimizer import Compilation, Optimizer, by_budget, optimizer

_SHOWN_CHARS = 500
"""The most characters that a proposer sees of a field of a training example."""
_MINIBATCHES_FROM = 50
"""With more validation examples than this, trials use a part of them (the same in DSPy's MIPROv2)."""


class MIPROSettings(BootstrapSettings):
    """Options of `mipro`."""

    max_bootstrapped_demos: NonNegativeInt = 4
    """Demonstrations for each predictor, made by running the program; with 0 only instructions are tried,
    whatever `max_labeled_demos` is, and the program's own demonstrations stay."""
    instructions: PositiveInt = by_budget(3, 6, 9)
    """Instructions for each predictor, including its own; by budget 3, 6 or 9."""
    demonstration_sets: PositiveInt = by_budget(6, 12, 18)
    """Sets of demonstrations, including the program's own; by budget 6, 12 or 18."""
    trials: PositiveInt = by_budget(10, 25, 50)
    """Choices of instructions and demonstrations to try; by budget 10, 25 or 50."""
    minibatch_size: PositiveInt = 35
    """Validation examples in a trial, if there are more than 50; every fifth trial, the best so far is
    evaluated on all."""
    temperature: float = Field(default=1.0, ge=0)
    """The temperature at which instructions are written."""


@optimizer
class MIPRO(Optimizer):
    """Lets the prompt model write instructions from the program, its data and its runs, and chooses among
    them and sets of demonstrations by Bayesian optimization (`dspy.MIPROv2`)."""

    name: ClassVar[str] = "mipro"
    about: ClassVar[str] = "instructions and demonstrations chosen together (MIPROv2)"
    Settings = MIPROSettings
    settings: MIPROSettings

    def planned_runs(self, train: int, validation: int) -> int:
        """Bootstrapping, trials, and evaluations on the whole validation set."""
        settings, trials = self.settings, self.settings.trials
        bootstrapping = train * settings.max_rounds * (settings.demonstration_sets - 1)
        if validation > _MINIBATCHES_FROM:
            return bootstrapping + trials * min(settings.minibatch_size, validation) + (trials // 5 + 3) * validation
        return bootstrapping + (trials + 2) * validation

    def compile(self, run: Compilation) -> dspy.Module:
        """The best program of those evaluated on the whole validation set."""
        settings = self.settings
        demos = settings.max_bootstrapped_demos
        # even if only instructions are tried, proposals show some demonstrations
        shown = settings.model_copy(update={"max_bootstrapped_demos": demos or 3})
        teleprompter = MIPROv2(
            lambda: [program for _, program in demonstration_sets(run, shown, settings.demonstration_sets)],
            metric=run.scoring,
            prompt_model=run.prompt_lm,
            task_model=run.task_lm,
            teacher_settings=run.teacher_settings,
            max_bootstrapped_demos=demos,
            max_labeled_demos=settings.max_labeled_demos if demos else 0,
            auto=None,
            num_candidates=settings.instructions,
            num_threads=run.threads,
            seed=run.seed + 1,  # DSPy takes 0 for no seed
            init_temperature=settings.temperature,
            track_stats=False,
        )
        with run.log.origin("trial"):
            return teleprompter.compile(
                run.student,
                trainset=[_without_long_texts(example) for example in run.trainset],
                valset=list(run.valset),
                num_trials=settings.trials,
                minibatch=len(run.valset) > _MINIBATCHES_FROM,
                minibatch_size=min(settings.minibatch_size, len(run.valset)),
            )


def _without_long_texts(example: dspy.Example) -> dspy.Example:
    """The example without texts such as references, which would fill the prompt of a proposer: it alone gets these."""
    inputs = example.inputs().keys()
    fields = {n: v for n, v in example.items() if n in inputs or isinstance(v, str | int | float)}
    return dspy.Example(
        **{n: v[:_SHOWN_CHARS] if isinstance(v, str) else v for n, v in fields.items() if n != "id"}
    ).with_inputs(*inputs)
