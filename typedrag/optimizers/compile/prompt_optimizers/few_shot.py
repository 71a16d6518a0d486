"""Demonstrations, balanced over question types, and the optimizers that choose them, MIPROv2 with instructions."""

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import dspy
from pydantic import Field, NonNegativeInt, PositiveInt

from typedrag.experiments.question_typing import infer_type, interleave_types
from typedrag.lms.trace import run_concurrently
from typedrag.optimizers.compile.prompt_optimizers import base
from typedrag.optimizers.compile.prompt_optimizers.dspy_internals import MIPROv2

logger = logging.getLogger("dspy.typedrag")  # DSPy's loggers write to the log of the compile
_SHOWN_CHARS = 500
"""The most characters that a proposer sees of a field of a training example."""
_MINIBATCHES_FROM = 50
"""With more validation examples than this, trials use a part of them (the same in DSPy's MIPROv2)."""


def usable(examples: Iterable[dspy.Example], predictor: dspy.Predict) -> list[dspy.Example]:
    """The examples that have an input and an output of a predictor, reduced to the predictor's fields."""
    signature = predictor.signature
    fields = [{name: e[name] for name in signature.fields if name in e} for e in examples]
    return [
        dspy.Example(**demo)
        for demo in fields
        if demo.keys() & signature.input_fields.keys() and demo.keys() & signature.output_fields.keys()
    ]


@base.optimizer
class BootstrapFewShot(base.Optimizer):
    """Gives predictors demonstrations from runs of the program that score well enough."""

    name: ClassVar[str] = "bootstrap"
    about: ClassVar[str] = "demonstrations out of the program's own good runs"

    max_bootstrapped_demos: PositiveInt = 4
    """Demonstrations for each predictor, made by running the program on training examples."""
    max_labeled_demos: NonNegativeInt = 4
    """Bootstrapped demonstrations and training examples together, for predictors whose outputs these hold."""
    max_rounds: PositiveInt = 1
    """Attempts at each example; those after the first are at temperature 1."""
    metric_threshold: float | None = Field(default=None, gt=0, le=1)
    """The least score of a run that makes demonstrations; by default the base's mean on the validation set, so
    that demonstrations show the program at its better, on any metric's scale."""

    def planned_runs(self, train: int, validation: int) -> int:
        return 2 * validation + train * self.max_rounds

    def compile(self, run: base.Compilation) -> dspy.Module:
        return self.bootstrap(run, run.trainset, self.max_bootstrapped_demos)

    def bootstrap(self, run: base.Compilation, trainset: Sequence[dspy.Example], limit: int) -> dspy.Module:
        """A copy of the student with demonstrations from its runs by the teacher's LM that score well enough, at most
        `limit` for a predictor.

        Examples run in threads, and none that would not run one after the other. A predictor that gets no demonstration
        keeps its own. If a run calls a predictor several times, one call makes a demonstration, in turn from run to
        run.
        """
        teacher, threshold = run.student.deepcopy(), run.threshold(self.metric_threshold)
        names = {id(predictor): name for name, predictor in teacher.named_predictors()}

        def attempt(example: dspy.Example, number: int = 0) -> dict[str, list[dspy.Example]] | None:
            """The demonstrations of a run, by predictor; None if it is not good enough."""
            lm = run.teacher_lm.copy(rollout_id=number, temperature=1.0) if number else run.teacher_lm
            calls: dict[str, list[dspy.Example]] = defaultdict(list)
            with dspy.context(lm=lm, trace=[]):
                try:
                    if run.scoring(example, teacher(**example.inputs()), dspy.settings.trace).score < threshold:
                        return None
                except Exception as error:  # it is logged as DSPy does, and makes no demonstration
                    logger.error("Failed to run or to evaluate example %s: %s", example, error)
                    return None
                for predictor, inputs, outputs in dspy.settings.trace:
                    if id(predictor) in names:
                        calls[names[id(predictor)]].append(dspy.Example(augmented=True, **inputs, **outputs))
            return calls

        demos: dict[str, list[dspy.Example]] = {name: [] for name in names.values()}
        reached: dict[str, set[str]] = defaultdict(set)
        runs: dict[int, dict[str, list[dspy.Example]] | None] = {}
        left: list[dspy.Example] = []
        examples = interleave_types(trainset)
        for place, example in enumerate(examples):
            predictors = reached[infer_type(example)]
            calls = None
            if not predictors or any(len(demos[name]) < limit for name in predictors):
                if id(example) not in runs:
                    ahead = [e for e in _needed(examples[place:], demos, reached, limit) if id(e) not in runs]
                    results = run_concurrently(attempt, ahead, run.threads)
                    runs.update(zip(map(id, ahead), results, strict=True))
                calls = runs[id(example)]
                for number in range(1, self.max_rounds):
                    calls = attempt(example, number) if calls is None else calls
            if calls is None:
                left.append(example)
            for name, own in (calls or {}).items():
                demos[name].append(own[len(demos[name]) % len(own)])
                predictors.add(name)
        program = run.student.deepcopy()
        for name, predictor in program.named_predictors():
            own = demos[name][:limit]
            labelled = usable(left, predictor)[: max(0, self.max_labeled_demos - len(own))]
            predictor.demos = own + labelled or predictor.demos
        return program

    def vary_demonstrations(self, run: base.Compilation, sets: int, most: int) -> Iterator[tuple[str, dspy.Module]]:
        """Yield `sets` programs with different demonstrations, each with its origin in words: the student's own, those
        of labelled examples, and at most `most` bootstrapped ones for a predictor, from examples in other orders."""
        yield "as it is", run.student.deepcopy()
        left = sets - 1
        if left and self.max_labeled_demos and any(usable(run.trainset, p) for p in run.student.predictors()):
            program = run.student.deepcopy()
            for predictor in program.predictors():
                predictor.demos = usable(run.trainset, predictor)[: self.max_labeled_demos] or predictor.demos
            yield "labelled demonstrations", program
            left -= 1
        for number in range(left):
            rng = random.Random(1_000 * run.seed + number)
            examples, size = list(run.trainset), most
            if number:
                rng.shuffle(examples)
                size = rng.randint(1, most)
            program = self.bootstrap(run, examples, size)
            yield f"at most {size} bootstrapped demonstrations, order {number}", program


def _needed(
    examples: Sequence[dspy.Example], demos: Mapping[str, Sequence[Any]], reached: Mapping[str, set[str]], limit: int
) -> list[dspy.Example]:
    """The examples that will be run even if each succeeds: the first of a type, as the predictors that it reaches
    are not known yet, and as many more as these predictors still need."""
    counts = Counter({name: len(own) for name, own in demos.items()})
    needed, unknown = [], set()
    for example in examples:
        kind = infer_type(example)
        predictors = reached[kind]
        first = not predictors and kind not in unknown
        if first or any(counts[name] < limit for name in predictors):
            needed.append(example)
            unknown.add(kind)
            counts.update(predictors)
    return needed


@base.optimizer
class BootstrapRandomSearch(BootstrapFewShot):
    """Tries several sets of demonstrations on the validation set and keeps the best.

    The search is that of `dspy.BootstrapFewShotWithRandomSearch`, over sets that are balanced over
    question types.
    """

    name: ClassVar[str] = "bootstrap-random-search"
    about: ClassVar[str] = "the best of several sets of bootstrapped demonstrations"

    candidates: PositiveInt = base.by_budget(6, 12, 18)
    """Sets of demonstrations to try, including the program's own; by budget 6, 12 or 18."""
    stop_at_score: float | None = Field(default=None, ge=0, le=1)
    """The score of a candidate that ends the search."""

    def planned_runs(self, train: int, validation: int) -> int:
        return self.candidates * (validation + train * self.max_rounds)

    def compile(self, run: base.Compilation) -> dspy.Module:
        best, best_score = run.student, -1.0
        for how, program in self.vary_demonstrations(run, self.candidates, self.max_bootstrapped_demos):
            score = run.evaluate(program, how).score
            if score > best_score:
                best, best_score = program, score
            if self.stop_at_score is not None and score >= self.stop_at_score:
                break
        return best


@base.optimizer
class MIPRO(BootstrapFewShot):
    """Lets the prompt model write instructions from the program, its data and its runs, and chooses among
    them and sets of demonstrations by Bayesian optimization (`dspy.MIPROv2`)."""

    name: ClassVar[str] = "mipro"
    about: ClassVar[str] = "instructions and demonstrations chosen together (MIPROv2)"

    max_bootstrapped_demos: NonNegativeInt = 4
    """Demonstrations for each predictor, made by running the program; with 0 only instructions are tried,
    whatever `max_labeled_demos` is, and the program's own demonstrations stay."""
    instructions: PositiveInt = base.by_budget(3, 6, 9)
    """Instructions for each predictor, including its own; by budget 3, 6 or 9."""
    demonstration_sets: PositiveInt = base.by_budget(6, 12, 18)
    """Sets of demonstrations, including the program's own; by budget 6, 12 or 18."""
    trials: PositiveInt = base.by_budget(10, 25, 50)
    """Choices of instructions and demonstrations to try; by budget 10, 25 or 50."""
    minibatch_size: PositiveInt = 35
    """Validation examples in a trial, if there are more than 50; every fifth trial, the best so far is
    evaluated on all."""
    temperature: float = Field(default=1.0, ge=0)
    """The temperature at which instructions are written."""

    def planned_runs(self, train: int, validation: int) -> int:
        bootstrapping = train * self.max_rounds * (self.demonstration_sets - 1)
        if validation > _MINIBATCHES_FROM:
            in_trials = self.trials * min(self.minibatch_size, validation)
            return bootstrapping + in_trials + (self.trials // 5 + 3) * validation
        return bootstrapping + (self.trials + 2) * validation

    def compile(self, run: base.Compilation) -> dspy.Module:
        demos = self.max_bootstrapped_demos
        sets = self.vary_demonstrations(run, self.demonstration_sets, demos or 3)  # proposals show some in any case
        optimizer = MIPROv2(
            lambda: [program for _, program in sets],
            metric=run.scoring,
            prompt_model=run.prompt_lm,
            task_model=run.task_lm,
            teacher_settings=run.teacher_settings,
            max_bootstrapped_demos=demos,
            max_labeled_demos=self.max_labeled_demos if demos else 0,
            auto=None,
            num_candidates=self.instructions,
            num_threads=run.threads,
            seed=run.seed + 1,  # DSPy takes 0 for no seed
            init_temperature=self.temperature,
            track_stats=False,
        )
        shown_examples = []  # without texts such as references, which would fill the prompt of a proposer
        for example in run.trainset:
            inputs = example.inputs().keys()
            fields = {
                n: v[:_SHOWN_CHARS] if isinstance(v, str) else v
                for n, v in example.items()
                if n != "id" and (n in inputs or isinstance(v, str | int | float))
            }
            shown_examples.append(dspy.Example(**fields).with_inputs(*inputs))
        with run.log.origin("trial"):
            return optimizer.compile(
                run.student,
                trainset=shown_examples,
                valset=list(run.valset),
                num_trials=self.trials,
                minibatch=len(run.valset) > _MINIBATCHES_FROM,
                minibatch_size=min(self.minibatch_size, len(run.valset)),
            )
