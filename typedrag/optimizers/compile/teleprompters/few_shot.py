"""Optimizers that choose demonstrations."""

from __future__ import annotations

from typing import ClassVar

import dspy
from pydantic import Field, PositiveInt

from typedrag.errors import InputError
from typedrag.extras import require
from typedrag.optimizers.compile.teleprompters.compilation import Compilation, CompileRequest, CostEstimate
from typedrag.optimizers.compile.teleprompters.demonstrations import (
    BootstrapSettings,
    bootstrap,
    demonstration_sets,
    usable,
    with_labelled,
)
from typedrag.optimizers.compile.teleprompters.optimizer import Optimizer, OptimizerSettings, by_budget, optimizer


class LabeledSettings(OptimizerSettings):
    """Options of `labeled-few-shot`."""

    k: PositiveInt = 8
    """Demonstrations for each predictor."""


@optimizer
class LabeledFewShot(Optimizer):
    """Gives predictors training examples as demonstrations, without an LM.

    Only predictors whose outputs the examples hold, such as a question type or a label, get any. Programs
    whose examples are questions and reference answers have no such predictor, and are refused.
    """

    name: ClassVar[str] = "labeled-few-shot"
    about: ClassVar[str] = "training examples as demonstrations, where they hold a predictor's outputs"
    Settings = LabeledSettings
    settings: LabeledSettings

    def check(self, request: CompileRequest) -> None:
        """Refuse a request in which no predictor would get a demonstration."""
        if not any(usable(request.trainset, predictor) for predictor in request.student.predictors()):
            raise InputError(
                "no training example holds an output of a predictor, so that none can be a demonstration",
                "Use bootstrap, which makes demonstrations by running the program",
            )

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate the base and the compiled program, each on the validation set."""
        _, validation = self.sizes(request)
        return CostEstimate.of(request, 2 * validation)

    def compile(self, run: Compilation) -> dspy.Module:
        """The student with demonstrations from the first examples, in turn from each question type."""
        return with_labelled(run.student, run.trainset, self.settings.k)


@optimizer
class BootstrapFewShot(Optimizer):
    """Gives predictors demonstrations from runs of the program that score well enough."""

    name: ClassVar[str] = "bootstrap"
    about: ClassVar[str] = "demonstrations out of the program's own good runs"
    Settings = BootstrapSettings
    settings: BootstrapSettings

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate the base, the compiled program, and each training example at most `max_rounds` times."""
        train, validation = self.sizes(request)
        return CostEstimate.of(request, 2 * validation + train * self.settings.max_rounds)

    def compile(self, run: Compilation) -> dspy.Module:
        """The student with demonstrations."""
        return bootstrap(run, self.settings).compile(run.student, trainset=list(run.trainset))


class SearchSettings(BootstrapSettings):
    """Options of `bootstrap-random-search`."""

    candidates: PositiveInt = by_budget(6, 12, 18)
    """Sets of demonstrations to try, including the program's own; by budget 6, 12 or 18."""
    stop_at_score: float | None = Field(default=None, ge=0, le=1)
    """The score of a candidate that ends the search."""


@optimizer
class BootstrapRandomSearch(Optimizer):
    """Tries several sets of demonstrations on the validation set and keeps the best.

    The search is that of `dspy.BootstrapFewShotWithRandomSearch`, over sets that are balanced over
    question types.
    """

    name: ClassVar[str] = "bootstrap-random-search"
    about: ClassVar[str] = "the best of several sets of bootstrapped demonstrations"
    Settings = SearchSettings
    settings: SearchSettings

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate each set on the validation set, and each training example for each bootstrapped set."""
        train, validation = self.sizes(request)
        return CostEstimate.of(request, self.settings.candidates * (validation + train * self.settings.max_rounds))

    def compile(self, run: Compilation) -> dspy.Module:
        """The best candidate, the first of equals."""
        settings = self.settings
        best, best_score = run.student, -1.0
        for how, program in demonstration_sets(run, settings, settings.candidates):
            score = run.evaluate(program, how).score
            if score > best_score:
                best, best_score = program, score
            if settings.stop_at_score is not None and score >= settings.stop_at_score:
                break
        return best


class OptunaSettings(BootstrapSettings):
    """Options of `bootstrap-optuna`."""

    pool: PositiveInt = 8
    """Demonstrations to bootstrap for each predictor, as a pool to choose from."""
    max_bootstrapped_demos: PositiveInt = 1
    """Demonstrations that a predictor gets from its pool, in order from where a trial begins."""
    trials: PositiveInt = by_budget(6, 12, 24)
    """Choices of demonstrations to try; by budget 6, 12 or 24."""


@optimizer
class BootstrapOptuna(Optimizer):
    """Lets Optuna choose for each predictor among demonstrations that are bootstrapped once.

    The search is that of `dspy.BootstrapFewShotWithOptuna`, but has a seed, so that it can be repeated, and
    copes with predictors that got no demonstration.
    """

    name: ClassVar[str] = "bootstrap-optuna"
    about: ClassVar[str] = "each predictor's demonstrations chosen by Optuna"
    Settings = OptunaSettings
    settings: OptunaSettings

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate the base and each trial on the validation set, and each training example once."""
        train, validation = self.sizes(request)
        settings = self.settings
        return CostEstimate.of(request, (1 + settings.trials) * validation + train * settings.max_rounds)

    def compile(self, run: Compilation) -> dspy.Module:
        """The student with the demonstrations of the best trial."""
        require("optuna")
        import optuna

        config = self.settings
        sizes = {"max_bootstrapped_demos": config.pool, "max_labeled_demos": min(config.pool, config.max_labeled_demos)}
        compiled = bootstrap(run, config.model_copy(update=sizes)).compile(run.student, trainset=list(run.trainset))
        pools = {n: p.demos for n, p in compiled.named_predictors()}
        programs: list[dspy.Module] = []

        def objective(trial: optuna.Trial) -> float:
            program = run.student.deepcopy()
            for name, predictor in program.named_predictors():
                if pool := pools[name]:
                    first = trial.suggest_int(name, 0, len(pool) - 1)
                    predictor.demos = (pool + pool)[first : first + min(config.max_bootstrapped_demos, len(pool))]
            programs.append(program)
            return run.evaluate(program, f"trial {trial.number}").score

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=run.seed))
        study.optimize(objective, n_trials=config.trials)
        return programs[study.best_trial.number]
