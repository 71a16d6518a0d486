"""SIMBA: rules and demonstrations out of runs that vary."""

import threading
from collections import defaultdict
from collections.abc import Callable
from statistics import fmean
from typing import Any, ClassVar

import dspy
from dspy.utils.callback import BaseCallback
from pydantic import NonNegativeInt, PositiveInt

from typedrag.optimizers.compile.prompt_optimizers import base


@base.optimizer
class SIMBA(base.Optimizer):
    """Runs each example of a batch several times; examples that went well once and badly another time
    give a demonstration, or a rule that the prompt model writes (`dspy.SIMBA`).

    SIMBA scores candidates only on its batches. Here the best of each step is evaluated on the validation
    set as well, so that there is always a best so far.
    """

    name: ClassVar[str] = "simba"
    about: ClassVar[str] = "rules and demonstrations out of runs that vary (SIMBA)"

    batch_size: PositiveInt = base.by_budget(12, 24, 32)
    """The most training examples in a step; by budget 12, 24 or 32."""
    candidates: PositiveInt = base.by_budget(3, 4, 6)
    """Programs made in a step; by budget 3, 4 or 6."""
    steps: PositiveInt = base.by_budget(3, 6, 8)
    """Steps; by budget 3, 6 or 8."""
    max_demos: NonNegativeInt = 4
    """Demonstrations that a predictor may hold before some are dropped; with 0 only rules are added."""

    def planned_runs(self, train: int, validation: int) -> int:
        in_steps = self.steps * (2 * self.candidates + 1) * min(self.batch_size, train)
        return in_steps + (self.steps + 2) * validation + (self.candidates + 1) * train

    def compile(self, run: base.Compilation) -> dspy.Module:
        optimizer = dspy.SIMBA(
            metric=run.scoring,
            bsize=min(self.batch_size, len(run.trainset)),
            num_candidates=self.candidates,
            max_steps=self.steps,
            max_demos=self.max_demos,
            prompt_model=run.prompt_lm,
            teacher_settings=run.teacher_settings if run.teacher_lm is not run.task_lm else None,
            num_threads=run.threads,
        )
        steps = _StepWatcher(run)
        strategies: list[Any] = [steps.watch(strategy) for strategy in vars(optimizer)["strategies"]]
        vars(optimizer)["strategies"] = strategies
        with dspy.context(callbacks=[*dspy.settings.callbacks, steps]):
            return optimizer.compile(run.student, trainset=list(run.trainset), seed=run.seed)


class _StepWatcher(BaseCallback):
    """Tracks the candidates of a step and their scores, and evaluates the best of them.

    SIMBA neither announces the end of a step nor evaluates through `dspy.Evaluate`. So candidates are seen when
    a strategy changes them, and their scores by the predictions that the metric scores.
    """

    def __init__(self, run: base.Compilation) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._calls: dict[str, int] = {}
        self._makers: dict[int, tuple[int, dspy.Prediction]] = {}
        self._candidates: dict[int, dspy.Module] = {}
        self._scores: dict[int, list[float]] = defaultdict(list)
        self._step = 0
        run.scoring.watch = self._scored

    def watch(self, strategy: Callable[..., bool]) -> Callable[..., bool]:

        def apply(bucket: list[dict[str, Any]], system: dspy.Module, **others: Any) -> bool:
            if self._scores:  # the last step has ended
                self._step += 1
                best = max(self._scores, key=lambda maker: fmean(self._scores[maker]))
                program = self._candidates[best]
                self._candidates.clear()
                self._scores.clear()
                self._makers.clear()
                self._run.evaluate(program, f"best of step {self._step}")
            shown = []
            for run in bucket:  # the prompt model sees texts, labels and counts alone
                items = run["prediction"].items() if run["prediction"] is not None else ()
                readable = {
                    name: value
                    for name, value in items
                    if all(isinstance(v, str | int) for v in (value if isinstance(value, list | tuple) else [value]))
                }
                prediction = None if run["prediction"] is None else dspy.Prediction(**readable)
                shown.append({**run, "prediction": prediction})
            done = strategy(shown, system, **others)
            self._candidates[id(system)] = system
            return done

        apply.__name__ = strategy.__name__
        return apply

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        if id(instance) in self._candidates:
            self._calls[call_id] = id(instance)

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
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
