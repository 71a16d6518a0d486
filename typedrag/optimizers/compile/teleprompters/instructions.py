"""Optimizers that write instructions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, ClassVar

import dspy
from dspy.utils.exceptions import LMInvalidRequestError
from pydantic import Field, NonNegativeInt, PositiveInt

from typedrag.optimizers.compile.teleprompters.compilation import Compilation, CompileRequest, CostEstimate
from typedrag.optimizers.compile.teleprompters.demonstrations import (
    Bootstrap,
    BootstrapSettings,
    bootstrap_settings,
    demonstration_sets,
    usable,
)
from typedrag.optimizers.compile.teleprompters.optimizer import Optimizer, UntrainedSettings, by_budget, optimizer

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

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate bootstrapping, trials and whole evaluations, and proposals: 12 on the data, 3 an instruction."""
        settings, trials = self.settings, self.settings.trials
        train, validation = self.sizes(request)
        bootstrapping = train * settings.max_rounds * (settings.demonstration_sets - 1)
        if validation > _MINIBATCHES_FROM:
            evaluations = trials * min(settings.minibatch_size, validation) + (trials // 5 + 3) * validation
        else:
            evaluations = (trials + 2) * validation
        proposals = 12 + 3 * settings.instructions * len(request.student.predictors())
        return CostEstimate.of(request, bootstrapping + evaluations, proposals)

    def compile(self, run: Compilation) -> dspy.Module:
        """The best program of those evaluated on the whole validation set."""
        settings = self.settings
        minibatch = len(run.valset) > _MINIBATCHES_FROM
        teleprompter = _MIPRO(run, settings)
        with run.trajectory.saying("trial"):
            return teleprompter.compile(
                run.student,
                trainset=list(run.trainset),
                valset=list(run.valset),
                num_trials=settings.trials,
                minibatch=minibatch,
                minibatch_size=min(settings.minibatch_size, len(run.valset)),
            )


class _MIPRO(dspy.MIPROv2):
    def __init__(self, run: Compilation, settings: MIPROSettings) -> None:
        super().__init__(
            metric=run.scoring,
            prompt_model=run.prompt_lm,
            task_model=run.task_lm,
            teacher_settings=run.teacher_settings,
            max_bootstrapped_demos=settings.max_bootstrapped_demos,
            max_labeled_demos=settings.max_labeled_demos if settings.max_bootstrapped_demos else 0,
            auto=None,
            num_candidates=settings.instructions,
            num_threads=run.threads,
            seed=run.seed + 1,  # DSPy takes 0 for no seed
            init_temperature=settings.temperature,
            track_stats=False,
        )
        self._run, self._settings = run, settings

    def _bootstrap_fewshot_examples(
        self, program: dspy.Module, *_: Any, **__: Any
    ) -> dict[int, list[list[dspy.Example]]]:
        settings = self._settings
        # even if only instructions are tried, proposals show some demonstrations
        shown = settings.model_copy(update={"max_bootstrapped_demos": settings.max_bootstrapped_demos or 3})
        sets = [p.predictors() for _, p in demonstration_sets(self._run, shown, settings.demonstration_sets)]
        return {place: [predictors[place].demos for predictors in sets] for place in range(len(program.predictors()))}

    def _propose_instructions(
        self, program: dspy.Module, trainset: Sequence[dspy.Example], *settings: Any, **others: Any
    ) -> Any:
        return super()._propose_instructions(program, [_shown(e) for e in trainset], *settings, **others)


def _shown(example: dspy.Example) -> dspy.Example:
    """The example without long texts, such as references, which would fill a proposer's prompt."""
    inputs = example.inputs().keys()
    fields = {n: v for n, v in example.items() if n in inputs or isinstance(v, str | int | float)}
    return dspy.Example(
        **{n: v[:_SHOWN_CHARS] if isinstance(v, str) else v for n, v in fields.items() if n != "id"}
    ).with_inputs(*inputs)


class COPROSettings(UntrainedSettings):
    """Options of `copro`."""

    breadth: int = by_budget(4, 6, 10, ge=2)
    """Instructions for each predictor at each depth, its own among the first; by budget 4, 6 or 10."""
    depth: PositiveInt = by_budget(2, 3, 3)
    """Rounds of new instructions, each written from earlier ones and their scores; by budget 2, 3 or 3."""
    temperature: float = Field(default=1.0, ge=0)
    """The temperature at which instructions are written; at DSPy's 1.4, an LM of 1.5B parameters writes nonsense."""


@optimizer
class COPRO(Optimizer):
    """Lets the prompt model write instructions, predictor by predictor, from earlier ones and their
    scores (`dspy.COPRO`).

    Training examples are not used: COPRO scores on the examples that it is given, here the validation set.
    Each predictor takes `breadth` evaluations at each depth, so compile only some modules of a program.
    """

    name: ClassVar[str] = "copro"
    about: ClassVar[str] = "instructions improved by coordinate ascent, predictor by predictor"
    Settings = COPROSettings
    settings: COPROSettings

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate the evaluations; with several predictors, COPRO evaluates all instructions anew at each depth."""
        predictors, breadth, depth = len(request.student.predictors()), self.settings.breadth, self.settings.depth
        _, validation = self.sizes(request)
        rounds = depth * (depth + 1) // 2 if predictors > 1 else depth
        return CostEstimate.of(request, (1 + predictors * breadth * rounds) * validation, predictors * breadth * depth)

    def compile(self, run: Compilation) -> dspy.Module:
        """The best candidate."""
        settings = self.settings
        teleprompter = dspy.COPRO(
            prompt_model=run.prompt_lm,
            metric=run.scoring,
            breadth=settings.breadth,
            depth=settings.depth,
            init_temperature=settings.temperature,
        )
        with run.trajectory.saying("instruction"):
            return teleprompter.compile(
                run.student, trainset=list(run.valset), eval_kwargs={"num_threads": run.threads}
            )


class InferRulesSettings(BootstrapSettings):
    """Options of `infer-rules`."""

    candidates: PositiveInt = by_budget(4, 8, 12)
    """Programs with rules to try; by budget 4, 8 or 12."""
    rules: PositiveInt = 10
    """Rules for each predictor."""


@optimizer
class InferRules(Optimizer):
    """Bootstraps demonstrations, lets the prompt model infer rules from them and adds these to the
    instructions (`dspy.InferRules`)."""

    name: ClassVar[str] = "infer-rules"
    about: ClassVar[str] = "rules inferred from demonstrations, added to the instructions"
    Settings = InferRulesSettings
    settings: InferRulesSettings

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate the base and each candidate on the validation set, and each training example once."""
        train, validation = self.sizes(request)
        candidates = self.settings.candidates
        runs = train * self.settings.max_rounds + (1 + candidates) * validation
        return CostEstimate.of(request, runs, candidates * len(request.student.predictors()))

    def compile(self, run: Compilation) -> dspy.Module:
        """The best candidate."""
        settings = self.settings
        teleprompter = _InferRules(
            num_candidates=settings.candidates,
            num_rules=settings.rules,
            num_threads=run.threads,
            **bootstrap_settings(run, settings),
        )
        induction = teleprompter.rules_induction_program
        induction.teacher_settings = {"lm": run.prompt_lm}
        induction.rng = random.Random(run.seed)
        with run.trajectory.saying("rules"):
            return teleprompter.compile(run.student, trainset=list(run.trainset), valset=list(run.valset))


class _InferRules(dspy.InferRules, Bootstrap):
    """DSPy's `InferRules`, with rules from a predictor's demonstrations, and own signatures for each candidate.

    DSPy takes rules from training examples, which hold the outputs of no predictor but a classifier, and
    writes into a signature that all candidates share.
    """

    def induce_natural_language_rules(self, predictor: dspy.Predict, trainset: Sequence[dspy.Example]) -> str:
        signature = predictor.signature
        predictor.signature = signature.with_instructions(signature.instructions)
        demos = usable(trainset, predictor)[: self.max_labeled_demos] or list(predictor.demos)
        while demos:
            try:
                return self.rules_induction_program(self.format_examples(demos, predictor.signature))
            except LMInvalidRequestError:  # too long
                demos.pop()
        return ""

    def update_program_instructions(self, predictor: dspy.Predict, natural_language_rules: str) -> None:
        if natural_language_rules:
            super().update_program_instructions(predictor, natural_language_rules)
