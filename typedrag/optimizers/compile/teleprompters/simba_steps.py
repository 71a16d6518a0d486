"""SIMBA, with the best of each step evaluated: it scores candidates on its batches alone."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from statistics import fmean
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from typedrag.optimizers.compile.teleprompters.compilation import Compilation


class SteppedSIMBA(dspy.SIMBA):
    """DSPy's, which also evaluates the best program of each step on the validation set.

    Attributes:
        watch: A DSPy callback that has to be among the configured ones.
    """

    def __init__(self, run: Compilation, **settings: Any) -> None:
        super().__init__(**settings)
        self.watch = _Step(run)
        self.strategies: list[Any] = [self.watch.watched(strategy) for strategy in vars(self)["strategies"]]


class _Step(BaseCallback):
    """Knows the candidates of a step and what they score, and evaluates the best of them.

    SIMBA neither says when a step ends nor evaluates through `dspy.Evaluate`. What it does say: which
    program a strategy has changed, and that program then makes the predictions that the metric scores.
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
        """A strategy of SIMBA's, which remembers the candidates it makes."""

        def apply(bucket: list[dict[str, Any]], system: dspy.Module, **others: Any) -> bool:
            if self._scores:  # those of the last step are done
                self._evaluate_best()
            shown = [{**made, "prediction": _in_words(made["prediction"])} for made in bucket]
            done = strategy(shown, system, **others)
            self._candidates[id(system)] = system
            return done

        apply.__name__ = strategy.__name__
        return apply

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Remember which candidate is called."""
        if id(instance) in self._candidates:
            self._calls[call_id] = id(instance)

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Remember what it predicted."""
        maker = self._calls.pop(call_id, None)
        if maker is None:
            return
        with self._lock:
            if outputs is None:
                self._scores[maker].append(0.0)
            else:
                self._makers[id(outputs)] = (maker, outputs)  # held, so that no other gets its id

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
    """What of a prediction SIMBA shows to the prompt model: texts, labels and counts.

    Steps and passages are in the trace, and what was measured, such as seconds, is never the same.
    """
    if prediction is None:
        return None
    return dspy.Prediction(**{name: value for name, value in prediction.items() if _is_said(value)})


def _is_said(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, str | int)
