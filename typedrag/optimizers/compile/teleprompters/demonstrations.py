"""Demonstrations, balanced over question types.

DSPy stops bootstrapping once so many examples have succeeded. In a program with a strategy for each
question type, most predictors are then left without a demonstration, since an example reaches only
those of its own type. Here examples come in turn from each type, and those of a type are run until
all predictors that they reach have enough demonstrations.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import dspy
from pydantic import Field, NonNegativeInt, PositiveInt

from typedrag.experiments.balance import in_turn, question_type_of
from typedrag.lms.trace import run_concurrently
from typedrag.optimizers.compile.teleprompters.compilation import Compilation
from typedrag.optimizers.compile.teleprompters.optimizer import OptimizerSettings


def usable(examples: Iterable[dspy.Example], predictor: dspy.Predict) -> list[dspy.Example]:
    """The examples that have an input and an output of a predictor, reduced to the predictor's fields.

    DSPy hands whole examples to all predictors, although an LM would see no other fields.
    """
    signature = predictor.signature
    fields = [{name: e[name] for name in signature.fields if name in e} for e in examples]
    return [
        dspy.Example(**demo)
        for demo in fields
        if demo.keys() & signature.input_fields.keys() and demo.keys() & signature.output_fields.keys()
    ]


class Bootstrap(dspy.BootstrapFewShot):
    """DSPy's bootstrapping, with equally many demonstrations for each predictor, whatever types reach it.

    Examples run in threads where DSPy runs one after the other; none is run that DSPy would not run.

    A predictor that gets no demonstration keeps its own. If a run calls a predictor several times, one call
    makes a demonstration, in turn from run to run; DSPy draws one differently in each process, which could not
    be resumed. The teacher is the student with its own demonstrations, run by the teacher's LM.
    """

    metric: Any

    def _bootstrap_one_example(self, example: dspy.Example, round_idx: int = 0) -> bool:
        metric = self.metric

        def scored(gold: dspy.Example, prediction: dspy.Prediction, trace: list[Any]) -> dspy.Prediction:
            scores = metric(gold, prediction, trace)
            trace[:] = self._one_of_each(trace)
            return scores

        self.metric = scored
        try:
            return bool(super()._bootstrap_one_example(example, round_idx))
        finally:
            self.metric = metric

    def _one_of_each(self, trace: Sequence[Any]) -> list[Any]:
        calls: dict[str, list[Any]] = defaultdict(list)
        for call in trace:
            calls[self.predictor2name.get(id(call[0]), "")].append(call)
        calls.pop("", None)
        return [demos[len(self.name2traces[name]) % len(demos)] for name, demos in calls.items()]

    def _prepare_student_and_teacher(self, student: dspy.Module, teacher: dspy.Module | None) -> None:
        self.student = student.deepcopy()
        self.teacher = (teacher or student).deepcopy()

    def _bootstrap(self, *, max_bootstraps: int | None = None) -> None:
        limit = max_bootstraps or self.max_bootstrapped_demos
        self.name2traces: dict[str, list[dspy.Example]] = {name: [] for name in self.name2predictor}
        reached: dict[str, set[str]] = defaultdict(set)
        self.validation = []
        examples = in_turn(self.trainset)
        run_ids: set[int] = set()
        for place, example in enumerate(examples):
            predictors = reached[question_type_of(example)]
            enough = bool(predictors) and all(len(self.name2traces[name]) >= limit for name in predictors)
            if not enough and id(example) not in run_ids:
                ahead = [e for e in self._needed(examples[place:], reached, limit) if id(e) not in run_ids]
                run_ids |= {id(e) for e in ahead}
                run_concurrently(self._ask, ahead, dspy.settings.num_threads)
            before = {name: len(traces) for name, traces in self.name2traces.items()}
            if not enough and any(self._bootstrap_one_example(example, n) for n in range(self.max_rounds)):
                predictors |= {name for name, traces in self.name2traces.items() if len(traces) > before[name]}
            else:
                self.validation.append(example)

    def _needed(
        self, examples: Sequence[dspy.Example], reached: Mapping[str, set[str]], limit: int
    ) -> list[dspy.Example]:
        """The examples that will be run even if each succeeds: the first of a type, as the predictors that it reaches
        are not known yet, and as many more as these predictors still need."""
        traces = Counter({name: len(demos) for name, demos in self.name2traces.items()})
        needed, unknown = [], set()
        for example in examples:
            kind = question_type_of(example)
            predictors = reached[kind]
            first = not predictors and kind not in unknown
            if first or any(traces[name] < limit for name in predictors):
                needed.append(example)
                unknown.add(kind)
                traces.update(predictors)
        return needed

    def _ask(self, example: dspy.Example) -> None:
        """Run and score an example only to store the replies, which the bootstrap then reuses."""
        with suppress(Exception), dspy.context(trace=[], **self.teacher_settings):
            self.metric(example, self.teacher(**example.inputs()), dspy.settings.trace)

    def _train(self) -> dspy.Module:
        for name, predictor in self.student.named_predictors():
            bootstrapped = self.name2traces[name][: self.max_bootstrapped_demos]
            left = max(0, self.max_labeled_demos - len(bootstrapped))
            predictor.demos = bootstrapped + usable(self.validation, predictor)[:left] or predictor.demos
        return self.student


class BootstrapSettings(OptimizerSettings):
    """Options of `bootstrap`, and of all optimizers that bootstrap demonstrations."""

    max_bootstrapped_demos: PositiveInt = 4
    """Demonstrations for each predictor, made by running the program on training examples."""
    max_labeled_demos: NonNegativeInt = 4
    """Bootstrapped demonstrations and training examples together, for predictors whose outputs these hold."""
    max_rounds: PositiveInt = 1
    """Attempts at each example; those after the first are at temperature 1."""
    metric_threshold: float | None = Field(default=None, gt=0, le=1)
    """The least score of a run that makes demonstrations; by default the base's mean on the validation set, so
    that demonstrations show the program at its better, on any metric's scale."""


def bootstrap_settings(run: Compilation, settings: BootstrapSettings) -> dict[str, Any]:
    """The arguments of `dspy.BootstrapFewShot` and of its subclasses."""
    return {
        "metric": run.scoring,
        "metric_threshold": run.threshold(settings.metric_threshold),
        "teacher_settings": run.teacher_settings,
        **settings.model_dump(include={"max_bootstrapped_demos", "max_labeled_demos", "max_rounds"}),
    }


def bootstrap(run: Compilation, settings: BootstrapSettings) -> Bootstrap:
    """The teleprompter that bootstraps demonstrations with these settings."""
    return Bootstrap(**bootstrap_settings(run, settings))


def with_labelled(student: dspy.Module, trainset: Sequence[dspy.Example], k: int) -> dspy.Module:
    """A copy of the student with at most `k` examples as demonstrations of each predictor whose outputs they hold.

    `dspy.LabeledFewShot` gives the same examples to all predictors, and removes their own demonstrations.
    """
    program = student.deepcopy()
    for predictor in program.predictors():
        predictor.demos = usable(trainset, predictor)[:k] or predictor.demos
    return program


def demonstration_sets(run: Compilation, settings: BootstrapSettings, sets: int) -> Iterator[tuple[str, dspy.Module]]:
    """Yield `sets` programs with different demonstrations, each with its origin in words.

    They are the student as it is, with labelled demonstrations if there are any, with the most bootstrapped
    ones, and with fewer from other orders of the examples: `dspy.BootstrapFewShotWithRandomSearch` and
    `dspy.MIPROv2` choose from the same.
    """
    most, labelled = settings.max_bootstrapped_demos, settings.max_labeled_demos
    count = 0
    if sets:
        yield "as it is", run.student.deepcopy()
        count += 1
    if count < sets and labelled and any(usable(run.trainset, p) for p in run.student.predictors()):
        yield "labelled demonstrations", with_labelled(run.student, run.trainset, labelled)
        count += 1
    for number in range(sets - count):
        rng = random.Random(1_000 * run.seed + number)
        examples, size = list(run.trainset), most
        if number:
            rng.shuffle(examples)
            size = rng.randint(1, most)
        teleprompter = bootstrap(run, settings.model_copy(update={"max_bootstrapped_demos": size}))
        program = teleprompter.compile(run.student, trainset=examples)
        program._compiled = False  # otherwise a program that contains it would skip it
        yield f"at most {size} bootstrapped demonstrations, order {number}", program
