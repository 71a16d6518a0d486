"""The trail of a program on one question: its steps, recorded as they happen, and its LM calls, counted.

Both belong to the call, not to the module, which stays stateless. They travel in context
variables, so strategies need not pass them on, and threads that carry the context see them.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar

import dspy
from dspy.utils.callback import BaseCallback
from dspy.utils.usage_tracker import UsageTracker

from typedrag.errors import StepFailed
from typedrag.events import StepEnded, emit
from typedrag.lms.threads import stop_if_cancelled, workers
from typedrag.records import FALLBACK, Step, Usage
from typedrag.sharing import Shared

T = TypeVar("T")
R = TypeVar("R")

_steps: ContextVar[list[Step] | None] = ContextVar("steps", default=None)
_budget: ContextVar[_Budget | None] = ContextVar("budget", default=None)
_tokens: ContextVar[_Budget | None] = ContextVar("tokens", default=None)
_reserved: ContextVar[int] = ContextVar("reserved", default=0)
_replayed: ContextVar[_Replayed | None] = ContextVar("replayed", default=None)


class _Budget:
    """LM calls or tokens that are left, whichever thread takes them."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._lock = threading.Lock()

    def take(self, reserved: int) -> bool:
        """Take one call, if more are left than are reserved; True if it was taken."""
        with self._lock:
            allowed = self._left > reserved
            self._left -= allowed
            return allowed

    def spend(self, amount: int) -> None:
        """Subtract an amount already used, even if it is more than is left."""
        with self._lock:
            self._left -= amount

    @property
    def left(self) -> int:
        with self._lock:
            return self._left


@contextmanager
def recording() -> Iterator[list[Step]]:
    """Collect the steps recorded within in a list of their own."""
    steps: list[Step] = []
    token = _steps.set(steps)
    try:
        yield steps
    finally:
        _steps.reset(token)


def record(step: Step) -> None:
    """Add a step to the innermost `recording`, if any, and emit it as an event to whoever follows the question."""
    emit(StepEnded, step=replace(step, steps=()))
    _keep(step)


def _keep(step: Step) -> None:
    steps = _steps.get()
    if steps is not None:
        steps.append(step)


def fall_back(failure: StepFailed | str, instead: str) -> None:
    """Record a step's failure, or what is wrong with it, and what is done instead; see `Answer.fallback`."""
    record(Step(FALLBACK, output=f"{failure}; {instead}"))


class NoCallsLeft(BaseException):
    """Stops an LM call that a budget does not allow; `ask` makes a `StepFailed` of it.

    It is no `Exception`, as DSPy only logs those of a callback.
    """


class _CallLimiter(Shared, BaseCallback):
    """Takes each LM call from the budgets before it is made, whoever makes it: DSPy's adapters ask twice."""

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        stop_if_cancelled()
        if (tokens := _tokens.get()) is not None and tokens.left <= 0:
            raise NoCallsLeft("the question's tokens are used up")
        budget = _budget.get()
        if budget is not None and not budget.take(_reserved.get()):
            raise NoCallsLeft("the question's LM calls are used up (option max_lm_calls)")


_LIMITER = _CallLimiter()


@contextmanager
def lm_call_budget(calls: int) -> Iterator[None]:
    """Allow `calls` LM calls within, and no more tokens than a `token_budget` around it."""
    others = [callback for callback in dspy.settings.callbacks if callback is not _LIMITER]
    token = _budget.set(_Budget(calls))
    try:
        with dspy.context(callbacks=[_LIMITER, *others]):  # first: what others begin for a call would not end
            yield
    finally:
        _budget.reset(token)


@contextmanager
def token_budget(tokens: int) -> Iterator[None]:
    """Allow LM calls within until this many tokens have been read and written; the last call may go beyond."""
    token = _tokens.set(_Budget(tokens))
    try:
        yield
    finally:
        _tokens.reset(token)


def spend_tokens(usage: Usage) -> None:
    """Count the tokens read and written against the `token_budget`, if there is one."""
    if (budget := _tokens.get()) is not None:
        budget.spend(usage.prompt_tokens + usage.completion_tokens)


@contextmanager
def reserving(calls: int) -> Iterator[None]:
    """Reserve LM calls of the budget for later steps: those within cannot use them."""
    token = _reserved.set(_reserved.get() + calls)
    try:
        yield
    finally:
        _reserved.reset(token)


def lm_calls_left(default: int) -> int:
    """The number of LM calls left in the budget without those reserved; `default` if there is no budget."""
    budget = _budget.get()
    return default if budget is None else max(0, budget.left - _reserved.get())


class CallTracker(UsageTracker):
    """The usage of each call of a step, in order; DSPy's own tracker forgets calls whose server does not report it.

    Attributes:
        finish_reason: Why the last reply ended, as its server says; None if that is not known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[str, dict[str, Any]]] = []
        self.finish_reason: str | None = None

    def add_usage(self, lm: str, usage_entry: dict[str, Any]) -> None:
        """Count a call."""
        self.entries.append((lm, usage_entry))

    @property
    def usage(self) -> Usage:
        """The calls and their tokens."""
        return sum((Usage.of_call(entry) for _, entry in self.entries), Usage())

    @property
    def tokens_when_cut_off(self) -> int:
        """The tokens of the last reply if it was cut off; else 0."""
        settings = getattr(dspy.settings.lm, "kwargs", {})
        limit = int(settings.get("max_tokens") or settings.get("max_completion_tokens") or 0)
        written = self.entries[-1][1].get("completion_tokens") if self.entries else None
        if self.finish_reason is None:  # of an LM that was not opened here
            return limit if written == limit else 0
        return (written or limit) if self.finish_reason == "length" else 0


class _Replayed:
    """Seconds that LM calls first took and that their kept replies saved."""

    def __init__(self) -> None:
        self.seconds = 0.0


@contextmanager
def counting_replays() -> Iterator[None]:
    """Let stopwatches within count the seconds that kept replies took when they were first made."""
    if _replayed.get() is not None:
        yield
        return
    token = _replayed.set(_Replayed())
    try:
        yield
    finally:
        _replayed.reset(token)


def replay(seconds: float) -> None:
    """Count the seconds that a kept reply first took; ignored outside of `counting_replays`."""
    replayed = _replayed.get()
    if replayed is not None:
        replayed.seconds += seconds


class _Branch:
    """The replayed seconds and the steps of one of several concurrent calls."""

    def __init__(self) -> None:
        self.replayed = _Replayed()
        self.steps: list[Step] = []


class Stopwatch:
    """Seconds since this was created.

    Example:
        >>> Stopwatch().seconds < 1
        True
        >>> with counting_replays():
        ...     watch = Stopwatch()
        ...     replay(60)
        ...     watch.seconds >= 60
        True
    """

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._replayed = _replayed.get()
        self._before = self._replayed.seconds if self._replayed else 0.0

    @property
    def seconds(self) -> float:
        """Wall time so far, to the millisecond, with the time that kept replies first took."""
        replayed = self._replayed.seconds - self._before if self._replayed else 0.0
        return round(time.perf_counter() - self._started + replayed, 3)


def run_concurrently(function: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """Apply a function to all items at once, in threads that carry the context.

    DSPy's usage, spans and settings reach the calls made there. Their steps and their additions to DSPy's trace are
    appended in the order of the items, whichever ends first.
    `dspy.Parallel` would lose usage, spans and exceptions.

    Raises:
        Exception: The error of the first item that raised one, once all have ended.
    """
    if len(items) < 2:
        return [function(item) for item in items]
    branches = [_Branch() for _ in items]

    def run(item: T, branch: _Branch) -> tuple[R, list[object]]:
        _replayed.set(branch.replayed)
        _steps.set(branch.steps)
        with dspy.context(trace=[]):
            return function(item), dspy.settings.trace

    with workers(min(threads, len(items))) as pool:
        futures = [
            pool.submit(contextvars.copy_context().run, run, item, branch)
            for item, branch in zip(items, branches, strict=True)
        ]
    replay(max(branch.replayed.seconds for branch in branches))  # the branches ran at once
    for branch in branches:
        for step in branch.steps:
            _keep(step)
    results = [future.result() for future in futures]
    if dspy.settings.trace is not None:
        for _, trace in results:
            dspy.settings.trace.extend(trace)
    return [result for result, _ in results]
