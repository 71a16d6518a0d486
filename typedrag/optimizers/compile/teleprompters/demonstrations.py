"""Demonstrations, balanced over question types.

DSPy stops bootstrapping once so many examples have succeeded. In a program with a strategy for each
question type that leaves most predictors without a demonstration, since an example reaches those of
its own type alone. Here examples come in turn from each type, and those of a type are run until
all predictors they reach have enough.
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
from typedrag.lms.trail import run_concurrently
from typedrag.optimizers.compile.teleprompters.compilation import Compilation
from typedrag.optimizers.compile.teleprompters.optimizer import OptimizerSettings


def usable(examples: Iterable[dspy.Example], predictor: dspy.Predict) -> list[dspy.Example]:
    """The examples that carry an input and an output of a predictor, with its fields alone.

    DSPy hands whole examples to all predictors, which show none of the others to an LM.
    """
    signature = predictor.signature
    fields = [{name: e[name] for name in signature.fields if name in e} for e in examples]
    return [
        dspy.Example(**given)
        for given in fields
        if given.keys() & signature.input_fields.keys() and given.keys() & signature.output_fields.keys()
    ]


class Bootstrap(dspy.BootstrapFewShot):
    """DSPy's, with as many demonstrations for each predictor, whatever the types it is reached by.

    Examples are asked at once where DSPy asks one after the other, and none that it would not ask.

    A predictor that gets none keeps those it has. Of several calls of a predictor in one run, one
    makes a demonstration, the next in each run; DSPy's lot falls differently in each process, so that
    it could not be resumed. The teacher is the student with its own demonstrations, by the teacher's LM.
    """

    metric: Any

    def _bootstrap_one_example(self, example: dspy.Example, round_idx: int = 0) -> bool:
        metric = self.metric

        def scored(gold: dspy.Example, prediction: dspy.Prediction, trace: list[Any]) -> dspy.Prediction:
            said = metric(gold, prediction, trace)
            trace[:] = self._one_of_each(trace)
            return said

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
        return [made[len(self.name2traces[name]) % len(made)] for name, made in calls.items()]

    def _prepare_student_and_teacher(self, student: dspy.Module, teacher: dspy.Module | None) -> None:
        self.student = student.deepcopy()
        self.teacher = (teacher or student).deepcopy()

    def _bootstrap(self, *, max_bootstraps: int | None = None) -> None:
        wanted = max_bootstraps or self.max_bootstrapped_demos
        self.name2traces: dict[str, list[dspy.Example]] = {name: [] for name in self.name2predictor}
        reached: dict[str, set[str]] = defaultdict(set)
        self.validation = []
        examples = in_turn(self.trainset)
        asked: set[int] = set()
        for place, example in enumerate(examples):
            predictors = reached[question_type_of(example)]
            enough = bool(predictors) and all(len(self.name2traces[name]) >= wanted for name in predictors)
            if not enough and id(example) not in asked:
                ahead = [e for e in self._needed(examples[place:], reached, wanted) if id(e) not in asked]
                asked |= {id(e) for e in ahead}
                run_concurrently(self._ask, ahead, dspy.settings.num_threads)
            before = {name: len(traces) for name, traces in self.name2traces.items()}
            if not enough and any(self._bootstrap_one_example(example, n) for n in range(self.max_rounds)):
                predictors |= {name for name, traces in self.name2traces.items() if len(traces) > before[name]}
            else:
                self.validation.append(example)

    def _needed(
        self, examples: Sequence[dspy.Example], reached: Mapping[str, set[str]], wanted: int
    ) -> list[dspy.Example]:
        """Those that will be run even if each is a success: the first of a type, since nothing is known of what it
        reaches, and as many as the predictors that it reaches still want."""
        traces = Counter({name: len(found) for name, found in self.name2traces.items()})
        needed, unknown = [], set()
        for example in examples:
            kind = question_type_of(example)
            predictors = reached[kind]
            first = not predictors and kind not in unknown
            if first or any(traces[name] < wanted for name in predictors):
                needed.append(example)
                unknown.add(kind)
                traces.update(predictors)
        return needed

    def _ask(self, example: dspy.Example) -> None:
        """Run and score an example for the replies, which are kept: what follows finds them."""
        with suppress(Exception), dspy.context(trace=[], **self.teacher_settings):
            self.metric(example, self.teacher(**example.inputs()), dspy.settings.trace)

    def _train(self) -> dspy.Module:
        for name, predictor in self.student.named_predictors():
            bootstrapped = self.name2traces[name][: self.max_bootstrapped_demos]
            left = max(0, self.max_labeled_demos - len(bootstrapped))
            predictor.demos = bootstrapped + usable(self.validation, predictor)[:left] or predictor.demos
        return self.student


class BootstrapSettings(OptimizerSettings):
    """Of `bootstrap`, and of all that bootstrap demonstrations."""

    max_bootstrapped_demos: PositiveInt = 4
    """Demonstrations for each predictor, made by running the program on training examples."""
    max_labeled_demos: NonNegativeInt = 4
    """Bootstrapped ones and training examples together, for predictors whose outputs these hold."""
    max_rounds: PositiveInt = 1
    """Attempts at each example; those after the first at temperature 1."""
    metric_threshold: float | None = Field(default=None, gt=0, le=1)
    """The score from which on a run makes demonstrations. By default what the base gets on average on
    the validation set: a demonstration shows the program at its better, on any metric's scale."""


def bootstrap_settings(run: Compilation, wanted: BootstrapSettings) -> dict[str, Any]:
    """The settings of `dspy.BootstrapFewShot`, and of what DSPy makes of it."""
    return {
        "metric": run.scoring,
        "metric_threshold": run.threshold(wanted.metric_threshold),
        "teacher_settings": run.teacher_settings,
        **wanted.model_dump(include={"max_bootstrapped_demos", "max_labeled_demos", "max_rounds"}),
    }


def bootstrap(run: Compilation, wanted: BootstrapSettings) -> Bootstrap:
    """The teleprompter that bootstraps at most so many demonstrations for each predictor."""
    return Bootstrap(**bootstrap_settings(run, wanted))


def with_labelled(student: dspy.Module, trainset: Sequence[dspy.Example], k: int) -> dspy.Module:
    """The student with at most `k` examples as demonstrations of each predictor whose outputs they hold.

    `dspy.LabeledFewShot` gives the same to all predictors, and takes from them what they had.
    """
    program = student.deepcopy()
    for predictor in program.predictors():
        predictor.demos = usable(trainset, predictor)[:k] or predictor.demos
    return program


def demonstration_sets(run: Compilation, wanted: BootstrapSettings, sets: int) -> Iterator[tuple[str, dspy.Module]]:
    """So many programs with different demonstrations, and how each came about.

    The student as it is, with labelled ones where there are any, with as many bootstrapped as may
    be, and with fewer from other orders of the examples: what `dspy.BootstrapFewShotWithRandomSearch`
    and `dspy.MIPROv2` choose from.
    """
    most, labelled = wanted.max_bootstrapped_demos, wanted.max_labeled_demos
    made = 0
    if sets:
        yield "as it is", run.student.deepcopy()
        made += 1
    if made < sets and labelled and any(usable(run.trainset, p) for p in run.student.predictors()):
        yield "labelled demonstrations", with_labelled(run.student, run.trainset, labelled)
        made += 1
    for number in range(sets - made):
        rng = random.Random(1_000 * run.seed + number)
        examples, size = list(run.trainset), most
        if number:
            rng.shuffle(examples)
            size = rng.randint(1, most)
        teleprompter = bootstrap(run, wanted.model_copy(update={"max_bootstrapped_demos": size}))
        program = teleprompter.compile(run.student, trainset=examples)
        program._compiled = False  # else a program that it becomes a part of would pass by it
        yield f"at most {size} bootstrapped demonstrations, order {number}", program
