"""Optimizers that reflect on failures."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable
from statistics import fmean
from typing import Any, ClassVar, Literal

import dspy
from dspy.teleprompt.gepa import InstructionProposer
from dspy.utils.callback import BaseCallback
from pydantic import Field, NonNegativeInt, PositiveInt

from typedrag.experiments.balance import question_type_of
from typedrag.lms.lm import PerLMAdapter
from typedrag.optimizers.compile.teleprompters.compilation import Compilation, CompileRequest, CostEstimate
from typedrag.optimizers.compile.teleprompters.gepa_parts import (
    OfOneType,
    ParseFailures,
    Reached,
    told_apart,
    without_bar,
)
from typedrag.optimizers.compile.teleprompters.optimizer import Optimizer, OptimizerSettings, by_budget, optimizer


class SIMBASettings(OptimizerSettings):
    """Options of `simba`."""

    batch_size: PositiveInt = by_budget(12, 24, 32)
    """The most training examples in a step; by budget 12, 24 or 32."""
    candidates: PositiveInt = by_budget(3, 4, 6)
    """Programs made in a step; by budget 3, 4 or 6."""
    steps: PositiveInt = by_budget(3, 6, 8)
    """Steps; by budget 3, 6 or 8."""
    max_demos: NonNegativeInt = 4
    """Demonstrations that a predictor may hold before some are dropped; with 0 only rules are added."""


@optimizer
class SIMBA(Optimizer):
    """Runs each example of a batch several times; examples that went well once and badly another time
    give a demonstration, or a rule that the prompt model writes (`dspy.SIMBA`).

    SIMBA scores candidates only on its batches. Here the best of each step is evaluated on the validation
    set as well, so that there is always a best so far.
    """

    name: ClassVar[str] = "simba"
    about: ClassVar[str] = "rules and demonstrations out of runs that vary (SIMBA)"
    Settings = SIMBASettings
    settings: SIMBASettings

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate the batches, each step's best on the validation set, and the last programs on the training set."""
        train, validation = self.sizes(request)
        steps, candidates = self.settings.steps, self.settings.candidates
        batch = min(self.settings.batch_size, train)
        runs = steps * (2 * candidates + 1) * batch + (steps + 2) * validation + (candidates + 1) * train
        return CostEstimate.of(request, runs, steps * (candidates + 1))

    def compile(self, run: Compilation) -> dspy.Module:
        """The program that does best on the training set."""
        settings = self.settings
        teleprompter = _SIMBA(
            run,
            metric=run.scoring,
            bsize=min(settings.batch_size, len(run.trainset)),
            num_candidates=settings.candidates,
            max_steps=settings.steps,
            max_demos=settings.max_demos,
            prompt_model=run.prompt_lm,
            teacher_settings=run.teacher_settings if run.teacher_lm is not run.task_lm else None,
            num_threads=run.threads,
        )
        with dspy.context(callbacks=[*dspy.settings.callbacks, teleprompter.watch]):
            return teleprompter.compile(run.student, trainset=list(run.trainset), seed=run.seed)


class _SIMBA(dspy.SIMBA):
    def __init__(self, run: Compilation, **settings: Any) -> None:
        super().__init__(**settings)
        self.watch = _Step(run)  # the caller adds it to the callbacks
        self.strategies: list[Any] = [self.watch.watched(strategy) for strategy in vars(self)["strategies"]]


class _Step(BaseCallback):
    """Tracks the candidates of a step and their scores, and evaluates the best of them.

    SIMBA neither announces the end of a step nor evaluates through `dspy.Evaluate`. So candidates are seen when
    a strategy changes them, and their scores by the predictions that the metric scores.
    """

    def __init__(self, run: Compilation) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._calls: dict[str, int] = {}
        self._makers: dict[int, tuple[int, dspy.Prediction]] = {}
        self._candidates: dict[int, dspy.Module] = {}
        self._scores: dict[int, list[float]] = defaultdict(list)
        self._step = 0
        run.scoring.watch = self._scored

    def watched(self, strategy: Callable[..., bool]) -> Callable[..., bool]:
        """Wrap a strategy of SIMBA so that its candidates are noted."""

        def apply(bucket: list[dict[str, Any]], system: dspy.Module, **others: Any) -> bool:
            if self._scores:  # the last step has ended
                self._evaluate_best()
            shown = [{**run, "prediction": _in_words(run["prediction"])} for run in bucket]
            done = strategy(shown, system, **others)
            self._candidates[id(system)] = system
            return done

        apply.__name__ = strategy.__name__
        return apply

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note which candidate is called."""
        if id(instance) in self._candidates:
            self._calls[call_id] = id(instance)

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Note which candidate made a prediction."""
        maker = self._calls.pop(call_id, None)
        if maker is None:
            return
        with self._lock:
            if outputs is None:
                self._scores[maker].append(0.0)
            else:
                self._makers[id(outputs)] = (maker, outputs)  # kept alive, so that its id is not used again

    def _scored(self, prediction: dspy.Prediction, score: float) -> None:
        with self._lock:
            maker, _ = self._makers.pop(id(prediction), (None, None))
            if maker is not None:
                self._scores[maker].append(score)

    def _evaluate_best(self) -> None:
        self._step += 1
        best = max(self._scores, key=lambda maker: fmean(self._scores[maker]))
        program = self._candidates[best]
        self._candidates.clear()
        self._scores.clear()
        self._makers.clear()
        self._run.evaluate(program, f"best of step {self._step}")


def _in_words(prediction: dspy.Prediction | None) -> dspy.Prediction | None:
    """The texts, labels and counts of a prediction, which SIMBA shows to the prompt model.

    Steps and passages are in the trace, and measured values, such as seconds, differ each time.
    """
    if prediction is None:
        return None
    return dspy.Prediction(**{name: value for name, value in prediction.items() if _is_said(value)})


def _is_said(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, str | int)


class GEPASettings(OptimizerSettings):
    """Options of `gepa`."""

    evaluations: PositiveInt = by_budget(6, 12, 24)
    """The most runs of the program, in evaluations on the validation set; minibatches count too. By budget 6, 12
    or 24."""
    minibatch_size: PositiveInt = 3
    """Training examples to reflect on at once, all of one question type."""
    selection: Literal["pareto", "current_best"] = "pareto"
    """The candidate to improve next: one that is best on some validation example, or the best of all."""
    predictors: Literal["round_robin", "all"] = "round_robin"
    """The predictors to rewrite at once: one that the minibatch has reached, or all that it has."""
    merges: NonNegativeInt = 0
    """The most times that the instructions of two candidates are combined. GEPA then takes another course in
    each process: a resumed compile repeats no LM call, but may abandon what it had begun."""
    temperature: float = Field(default=1.0, ge=0)
    """The temperature at which instructions are written."""


@optimizer
class GEPA(Optimizer):
    """Lets the prompt model reflect on feedback in words and rewrite instructions, and keeps candidates
    that are best on some validation example (`dspy.GEPA`).

    A predictor is reflected on with examples of a type that reaches it; unparsable replies are feedback
    as well. It resumes from stored replies, as the other optimizers do, and writes no state of its own,
    which would be a pickle.
    """

    name: ClassVar[str] = "gepa"
    about: ClassVar[str] = "instructions rewritten by reflection on feedback (GEPA)"
    Settings = GEPASettings
    settings: GEPASettings

    def estimate(self, request: CompileRequest) -> CostEstimate:
        """Estimate evaluations, the base and the compiled program; one proposal in three is assumed to be evaluated."""
        _, validation = self.sizes(request)
        calls = self.settings.evaluations * validation
        proposals = math.ceil(calls / (2 * self.settings.minibatch_size + validation / 3))
        return CostEstimate.of(request, calls + 2 * validation, proposals)

    def compile(self, run: Compilation) -> dspy.Module:
        """The candidate that is best on the validation set."""
        config = self.settings
        teleprompter = dspy.GEPA(
            metric=run.scoring,
            max_metric_calls=config.evaluations * len(run.valset),
            reflection_minibatch_size=None,  # the sampler has its own size
            candidate_selection_strategy=config.selection,
            component_selector=Reached(at_once=config.predictors == "all"),
            reflection_lm=run.prompt_lm.copy(temperature=config.temperature),
            instruction_proposer=InstructionProposer(adapter=PerLMAdapter()),
            add_format_failure_as_feedback=True,
            use_merge=config.merges > 0,
            max_merge_invocations=config.merges,
            num_threads=run.threads,
            warn_on_score_mismatch=False,
            seed=run.seed,
            gepa_kwargs={
                "batch_sampler": OfOneType([question_type_of(e) for e in run.trainset], config.minibatch_size, run.seed)
            },
        )
        callbacks = [*dspy.settings.callbacks, ParseFailures()]
        with run.trajectory.saying("reflection"), dspy.context(callbacks=callbacks), without_bar():
            return teleprompter.compile(told_apart(run.student), trainset=list(run.trainset), valset=list(run.valset))
