"""Optimizers that are made of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import dspy
from dspy.teleprompt import Teleprompter
from pydantic import Field
from rapidfuzz import fuzz

from typedrag.errors import InputError
from typedrag.optimizers.compile.teleprompters.compilation import Compilation
from typedrag.optimizers.compile.teleprompters.demonstrations import demonstration_sets
from typedrag.optimizers.compile.teleprompters.few_shot import SearchSettings
from typedrag.optimizers.compile.teleprompters.optimizer import (
    CompileRequest,
    CostEstimate,
    Optimizer,
    OptimizerSettings,
    build_optimizer,
    optimizer,
)


class EnsembleSettings(SearchSettings):
    """Of `ensemble`."""

    size: int = Field(default=3, ge=2)
    """Programs that are asked at once: the best of the search."""


@optimizer
class Ensemble(Optimizer):
    """Tries several sets of demonstrations, and what the best programs answer together (`dspy.Ensemble`).

    Of their answers the one counts that is most like the others: of labels that is the majority's.
    An ensemble takes the LM calls of all its programs for each question, and is no one program that
    could be saved. What comes out is therefore its best single program; what the ensemble scores is
    in the trajectory, so that one sees what it would be worth.
    """

    name: ClassVar[str] = "ensemble"
    about: ClassVar[str] = "the best of several sets of demonstrations, and what they score together"
    Settings = EnsembleSettings
    settings: EnsembleSettings

    def check(self, request: CompileRequest) -> None:
        """Refuse where there are fewer candidates than the ensemble has programs."""
        candidates = self.settings.filled(request.budget).candidates or 0
        if candidates < self.settings.size:
            raise InputError(
                f"{candidates} candidates make no ensemble of {self.settings.size}", "Raise the option candidates"
            )

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Those of the random search; the ensemble's answers are in the cache, but not all judgments of them."""
        train, validation = self.sizes(request)
        candidates = self.settings.filled(request.budget).candidates or 0
        return CostEstimate.of(request, candidates * (validation + train * self.settings.max_rounds) + validation)

    def compile(self, run: Compilation) -> dspy.Module:
        """The best single program."""
        wanted = self.settings.filled(run.budget)
        sets = demonstration_sets(
            run, wanted.candidates or 0, wanted.max_bootstrapped_demos, wanted.max_labeled_demos, **wanted.bootstrapping
        )
        scored = [(run.evaluate(program, how).score, program) for how, program in sets]
        best = [program for _, program in sorted(scored, key=lambda pair: -pair[0])]
        members = best[: wanted.size]
        together = dspy.Ensemble(reduce_fn=most_alike).compile(members)
        run.evaluate(together, f"ensemble of the best {len(members)}")
        return best[0]


def most_alike(predictions: Sequence[dspy.Prediction]) -> dspy.Prediction:
    """The prediction whose texts and labels are most like those of the others; the first of equals.

    Example:
        >>> said = [dspy.Prediction(label=label) for label in ("reason", "debate", "debate")]
        >>> most_alike(said).label
        'debate'
    """
    texts = [_text(prediction) for prediction in predictions]
    likeness = [sum(fuzz.ratio(text, other) for other in texts) for text in texts]
    return predictions[likeness.index(max(likeness))]


def _text(prediction: dspy.Prediction) -> str:
    if "answer" in prediction:
        return str(prediction.answer)
    return " ".join(str(value) for value in prediction.toDict().values())


_SIZES = set(OptimizerSettings.model_fields)
"""Options of every optimizer, which its steps have from `better-together`."""


class BetterTogetherSettings(OptimizerSettings):
    """Of `better-together`."""

    steps: tuple[str, ...] = ("bootstrap-random-search", "gepa")
    """Optimizers by name, each beginning with what the one before it made."""
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Of these optimizers, by name."""
    shuffle: bool = True
    """Whether each gets the training examples in another order."""


@optimizer
class BetterTogether(Optimizer):
    """Runs several optimizers one after the other and keeps the best of what each made (`dspy.BetterTogether`)."""

    name: ClassVar[str] = "better-together"
    about: ClassVar[str] = "several optimizers in sequence"
    Settings = BetterTogetherSettings
    settings: BetterTogetherSettings

    def check(self, request: CompileRequest) -> None:
        """Refuse unknown steps, and what one of them refuses."""
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
        for step in self._steps(request):
            step.check(request)

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Those of the steps."""
        of_steps = [step.estimate(request) for step in self._steps(request)]
        return CostEstimate.of(request, sum(e.runs for e in of_steps), sum(e.proposals for e in of_steps))

    def compile(self, run: Compilation) -> dspy.Module:
        """The best program of any step."""
        steps = {f"step{n}": _Step(step, run, n) for n, step in enumerate(self._steps(run), 1)}
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

    def _steps(self, of: CompileRequest | Compilation) -> list[Optimizer]:
        sizes = self.settings.filled(of.budget).model_dump(include=_SIZES)
        for name in self.settings.steps:
            if name == self.name:
                raise InputError("better-together cannot be a step of itself", "Name other optimizers")
        return [build_optimizer(name, {**self.settings.options.get(name, {}), **sizes}) for name in self.settings.steps]


class _Step(Teleprompter):
    """An optimizer as DSPy sees it. DSPy ends at a step that fails and says so in its log alone."""

    def __init__(self, step: Optimizer, run: Compilation, number: int) -> None:
        super().__init__()
        self._optimizer, self._run, self._number = step, run, number
        self._failure: Exception | None = None

    def compile(self, student: dspy.Module, *, trainset: list[dspy.Example], valset: list[dspy.Example]) -> dspy.Module:
        run, theirs = self._run, student.get_lm()
        lm = run.task_lm if theirs.model == run.task_lm.model else theirs  # which a step before has fine-tuned
        run = replace(
            run,
            student=run.trajectory.clean(student),
            trainset=trainset,
            task_lm=lm,
            seed=run.seed + self._number,
        )
        try:
            with run.trajectory.saying(f"step {self._number}"), dspy.context(lm=lm):
                made = self._optimizer.compile(run)
        except Exception as error:
            self._failure = error
            raise
        compiled = run.trajectory.clean(made)
        compiled.set_lm(made.get_lm() or lm)
        return compiled

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
