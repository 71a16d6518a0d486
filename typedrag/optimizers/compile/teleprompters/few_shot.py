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
    """Of `labeled-few-shot`."""

    k: PositiveInt = 8
    """Demonstrations for each predictor."""


@optimizer
class LabeledFewShot(Optimizer):
    """Gives predictors training examples as demonstrations, as they are; asks no LM for them.

    Only predictors whose outputs the examples hold get any: a question type, a label. Programs whose
    examples are questions and reference answers have none, and are refused.
    """

    name: ClassVar[str] = "labeled-few-shot"
    about: ClassVar[str] = "training examples as demonstrations, where they hold a predictor's outputs"
    Settings = LabeledSettings
    settings: LabeledSettings

    def check(self, request: CompileRequest) -> None:
        """Refuse where no predictor would get a demonstration."""
        if not any(usable(request.trainset, predictor) for predictor in request.student.predictors()):
            raise InputError(
                "no training example holds an output of a predictor, so that none can be a demonstration",
                "Use bootstrap, which makes demonstrations by running the program",
            )

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """The base and what comes out, each on the validation set."""
        _, validation = self.sizes(request)
        return CostEstimate.of(request, 2 * validation)

    def compile(self, run: Compilation) -> dspy.Module:
        """The student with the first examples in turn from each question type."""
        return with_labelled(run.student, run.trainset, self.settings.k)


@optimizer
class BootstrapFewShot(Optimizer):
    """Gives predictors demonstrations out of runs of the program that the metric finds good enough."""

    name: ClassVar[str] = "bootstrap"
    about: ClassVar[str] = "demonstrations out of the program's own good runs"
    Settings = BootstrapSettings
    settings: BootstrapSettings

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """The base and what comes out, and each training example at most `max_rounds` times."""
        train, validation = self.sizes(request)
        return CostEstimate.of(request, 2 * validation + train * self.settings.max_rounds)

    def compile(self, run: Compilation) -> dspy.Module:
        """The student with demonstrations."""
        return bootstrap(run, self.settings).compile(run.student, trainset=list(run.trainset))


class SearchSettings(BootstrapSettings):
    """Of `bootstrap-random-search`."""

    candidates: PositiveInt = by_budget(6, 12, 18)
    """Sets of demonstrations that are tried, the program's own among them; by budget 6, 12 or 18."""
    stop_at_score: float | None = Field(default=None, ge=0, le=1)
    """Stop once a candidate scores as much."""


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
        """Each set on the validation set, and each training example for each bootstrapped set."""
        train, validation = self.sizes(request)
        return CostEstimate.of(request, self.settings.candidates * (validation + train * self.settings.max_rounds))

    def compile(self, run: Compilation) -> dspy.Module:
        """The best candidate; the first of equals."""
        wanted = self.settings
        best, best_score = run.student, -1.0
        for how, program in demonstration_sets(run, wanted, wanted.candidates):
            score = run.evaluate(program, how).score
            if score > best_score:
                best, best_score = program, score
            if wanted.stop_at_score is not None and score >= wanted.stop_at_score:
                break
        return best


class OptunaSettings(BootstrapSettings):
    """Of `bootstrap-optuna`."""

    pool: PositiveInt = 8
    """Demonstrations that are bootstrapped for each predictor, to choose from."""
    max_bootstrapped_demos: PositiveInt = 1
    """Of the pool that a predictor gets: one after the other from where a trial begins."""
    trials: PositiveInt = by_budget(6, 12, 24)
    """Choices that are tried; by budget 6, 12 or 24."""


@optimizer
class BootstrapOptuna(Optimizer):
    """Lets Optuna choose for each predictor among demonstrations that are bootstrapped once.

    The search is that of `dspy.BootstrapFewShotWithOptuna`, whose sampler has no seed and cannot be
    repeated, and which cannot do with a predictor that got no demonstration.
    """

    name: ClassVar[str] = "bootstrap-optuna"
    about: ClassVar[str] = "each predictor's demonstrations chosen by Optuna"
    Settings = OptunaSettings
    settings: OptunaSettings

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """The base and each trial on the validation set, and each training example once."""
        train, validation = self.sizes(request)
        wanted = self.settings
        return CostEstimate.of(request, (1 + wanted.trials) * validation + train * wanted.max_rounds)

    def compile(self, run: Compilation) -> dspy.Module:
        """The student with the demonstrations of the best trial."""
        require("optuna")
        import optuna

        wanted = self.settings
        sizes = {"max_bootstrapped_demos": wanted.pool, "max_labeled_demos": min(wanted.pool, wanted.max_labeled_demos)}
        made = bootstrap(run, wanted.model_copy(update=sizes))
        pools = {n: p.demos for n, p in made.compile(run.student, trainset=list(run.trainset)).named_predictors()}
        programs: list[dspy.Module] = []

        def objective(trial: optuna.Trial) -> float:
            program = run.student.deepcopy()
            for name, predictor in program.named_predictors():
                if pool := pools[name]:
                    first = trial.suggest_int(name, 0, len(pool) - 1)
                    predictor.demos = (pool + pool)[first : first + min(wanted.max_bootstrapped_demos, len(pool))]
            programs.append(program)
            return run.evaluate(program, f"trial {trial.number}").score

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=run.seed))
        study.optimize(objective, n_trials=wanted.trials)
        return programs[study.best_trial.number]
