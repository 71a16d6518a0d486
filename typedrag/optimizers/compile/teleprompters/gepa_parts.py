"""Additions to GEPA for programs whose predictors serve different question types and whose steps never fail."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import dspy
from dspy.teleprompt.bootstrap_trace import FailedPrediction
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import AdapterParseError

_NAME = "predictor"


def told_apart(student: dspy.Module) -> dspy.Module:
    """A copy whose signatures all differ, in a detail that no prompt shows.

    GEPA tells predictors apart by their signatures, and several predictors of a program may have the same.
    """
    program = student.deepcopy()
    for name, predictor in program.named_predictors():
        first = next(iter(predictor.signature.input_fields))
        predictor.signature = predictor.signature.with_updated_fields(first, **{_NAME: name})
    return program


class Reached:
    """Chooses predictors to rewrite, one after the other, among those that the minibatch has reached.

    GEPA's own selectors choose among all predictors. In a program with a strategy for each question type,
    most of them would be reflected on without an example. `at_once` rewrites all that were reached.
    """

    def __init__(self, at_once: bool) -> None:
        self._at_once = at_once

    def __call__(
        self, state: Any, trajectories: list[Any], subsample_scores: list[float], candidate_idx: int, candidate: Any
    ) -> list[str]:
        """Return the names of the predictors to rewrite; see GEPA's `ReflectionComponentSelector`."""
        reached = {_name_of(call[0]) for trajectory in trajectories for call in trajectory["trace"]}
        names: list[str] = state.list_of_named_predictors
        if self._at_once:
            return [name for name in names if name in reached] or names
        following = state.named_predictor_id_to_update_next_for_program_candidate
        first = following[candidate_idx]
        order = [*range(first, len(names)), *range(first)]
        chosen = next((place for place in order if names[place] in reached), first)
        following[candidate_idx] = (chosen + 1) % len(names)
        return [names[chosen]]


def _name_of(predictor: dspy.Predict) -> str | None:
    """The name that `told_apart` gave a predictor; None for predictors outside the compiled part."""
    name: str | None = next(iter(predictor.signature.input_fields.values())).json_schema_extra.get(_NAME)
    return name


class OfOneType:
    """Draws minibatches of examples of one question type, of each type in turn.

    So the predictors that are rewritten see `size` examples in reflection and trial, or all of their type if there
    are fewer.
    """

    def __init__(self, types: Sequence[str], size: int, seed: int) -> None:
        rng = random.Random(seed)
        by_type: dict[str, list[int]] = defaultdict(list)
        for place, question_type in enumerate(types):
            by_type[question_type].append(place)
        for places in by_type.values():
            rng.shuffle(places)
        self._queues = [deque(by_type[name]) for name in sorted(by_type)]
        self._size = size
        self._turn = 0

    def next_minibatch_ids(self, loader: Any, state: Any) -> list[int]:
        """The places of the next training examples; see GEPA's `BatchSampler`."""
        queue = self._queues[self._turn % len(self._queues)]
        self._turn += 1
        drawn = [queue.popleft() for _ in range(min(self._size, len(queue)))]
        queue.extend(drawn)
        return drawn


@contextmanager
def without_bar() -> Iterator[None]:
    """Silence GEPA's progress bar, which would overwrite the caller's on stderr; DSPy has no option for it."""
    engine: Any = import_module("gepa.core.engine")
    drawn = engine.tqdm
    engine.tqdm = partial(drawn, disable=True)
    try:
        yield
    finally:
        engine.tqdm = drawn


class ParseFailures(BaseCallback):
    """Puts replies that could not be parsed into the trace, where GEPA looks for them.

    Programs handle such a reply by another attempt or a fallback, so no error reaches GEPA. An attempt
    that succeeds removes the failed ones before it from the trace.
    """

    def __init__(self) -> None:
        self._calls: dict[str, tuple[dspy.Predict, dict[str, Any]]] = {}

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note the inputs of a predictor's call."""
        if isinstance(instance, dspy.Predict):
            arguments = inputs.get("kwargs") or {}
            fields = instance.signature.input_fields
            self._calls[call_id] = (instance, {name: arguments[name] for name in fields if name in arguments})

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Add a failed call to the trace; after a success, remove the failed ones before it."""
        called = self._calls.pop(call_id, None)
        trace = dspy.settings.trace
        if called is None or trace is None:
            return
        predictor, inputs = called
        if isinstance(exception, AdapterParseError):
            trace.append((predictor, inputs, FailedPrediction(completion_text=exception.lm_response)))
        elif outputs is not None:
            trace[:] = [
                call
                for call in trace
                if not (isinstance(call[2], FailedPrediction) and call[0] is predictor and call[1] == inputs)
            ]
