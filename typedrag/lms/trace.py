"""The trace of a program on one question: its steps, as they happen, and its LM calls, counted and limited.

Both belong to the call, not to the module, which stays stateless; see `typedrag.core.call_context`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import dspy
from dspy.utils.callback import BaseCallback
from dspy.utils.usage_tracker import UsageTracker

from typedrag.core.call_context import Budget, Replays, call_context, carry, use_context
from typedrag.core.errors import StepFailed
from typedrag.core.events import StepEnded, emit
from typedrag.core.records import FALLBACK, Step, Usage
from typedrag.core.registry import NoDeepcopy
from typedrag.lms.threads import reuse_pool, stop_if_cancelled

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def collect_steps() -> Iterator[list[Step]]:
    steps: list[Step] = []
    with use_context(steps=steps):
        yield steps


def add_step(step: Step) -> None:
    """Add a step to the innermost `collect_steps`, if any, and emit it as an event to whoever follows the question."""
    context = call_context()
    if context.listener is not None:
        emit(StepEnded, step=replace(step, steps=()))
    if context.steps is not None:
        context.steps.append(step)


def record_fallback(failure: StepFailed | str, instead: str) -> None:
    """Add a step's failure, or what is wrong with it, and what is done instead; see `Answer.fallback`."""
    add_step(Step(FALLBACK, output=f"{failure}; {instead}"))


class NoCallsLeft(BaseException):
    """Stops an LM call that a budget does not allow; no `Exception`, as DSPy only logs those of a callback."""


def limit_calls(calls: int) -> AbstractContextManager[None]:
    return use_context(lm_calls=Budget(calls))


def limit_tokens(tokens: int) -> AbstractContextManager[None]:
    """Allow LM calls within until this many tokens have been read and written; the last call may go beyond."""
    return use_context(tokens=Budget(tokens))


def reserve_calls(calls: int) -> AbstractContextManager[None]:
    """Reserve LM calls of the budget for later steps: those within cannot use them."""
    return use_context(reserved=call_context().reserved + calls)


def calls_left(default: int) -> int:
    """The number of LM calls left in the budget without those reserved; `default` if there is no budget."""
    context = call_context()
    return default if context.lm_calls is None else max(0, context.lm_calls.left - context.reserved)


def count_call() -> None:
    """Count one LM call, before it is made: DSPy's adapters may make two where one was asked for."""
    stop_if_cancelled()
    context = call_context()
    if context.tokens is not None and context.tokens.left <= 0:
        raise NoCallsLeft("the question's tokens are used up")
    if context.lm_calls is not None and not context.lm_calls.take(context.reserved):
        raise NoCallsLeft("the question's LM calls are used up (option max_lm_calls)")


def count_tokens(usage: Usage) -> None:
    if (budget := call_context().tokens) is not None:
        budget.spend(usage.prompt_tokens + usage.completion_tokens)


class CallCounter(NoDeepcopy, BaseCallback):
    """Counts the calls of LMs that do not count them themselves."""

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        if not getattr(instance, "counts_calls", False):
            count_call()


class CallTracker(UsageTracker):
    """The usage of each call of a step, in order; DSPy's own tracker forgets calls whose server does not report it.

    `finish_reason` is why the last reply ended, as its server says; None if that is not known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[str, dict[str, Any]]] = []
        self.finish_reason: str | None = None

    def add_usage(self, lm: str, usage_entry: dict[str, Any]) -> None:
        self.entries.append((lm, usage_entry))

    @property
    def usage(self) -> Usage:
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


def count_replays() -> AbstractContextManager[None]:
    """Let stopwatches within count the seconds that kept replies took when they were first made."""
    return use_context(replays=call_context().replays or Replays())


def add_replay(seconds: float) -> None:
    if (replays := call_context().replays) is not None:
        replays.seconds += seconds


class Stopwatch:
    """Seconds since this was created, with those that kept replies first took, within `count_replays`."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._replays = call_context().replays
        self._before = self._replays.seconds if self._replays else 0.0

    @property
    def seconds(self) -> float:
        """Wall time so far, to the millisecond, with the time that kept replies first took."""
        replays = self._replays.seconds - self._before if self._replays else 0.0
        return round(time.perf_counter() - self._started + replays, 3)


def run_concurrently(function: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """Apply a function to all items at once, in threads that carry the context.

    DSPy's usage, spans and settings reach the calls made there. Their steps and their additions to DSPy's trace are
    appended in the order of the items, whichever ends first.
    `dspy.Parallel` would lose usage, spans and exceptions.
    """
    if min(threads, len(items)) < 2:
        return [function(item) for item in items]
    branches: list[tuple[Replays, list[Step]]] = [(Replays(), []) for _ in items]

    def run(item: T, replays: Replays, steps: list[Step]) -> tuple[R, list[object]]:
        with use_context(replays=replays, steps=steps), dspy.context(trace=[]):
            return function(item), dspy.settings.trace

    with reuse_pool(min(threads, len(items))) as pool:
        futures = [pool.submit(carry(run), item, *branch) for item, branch in zip(items, branches, strict=True)]
        wait(futures)
    add_replay(max(replays.seconds for replays, _ in branches))  # the branches ran at once
    if (collected := call_context().steps) is not None:
        collected.extend(step for _, steps in branches for step in steps)
    results = [future.result() for future in futures]
    if dspy.settings.trace is not None:
        for _, trace in results:
            dspy.settings.trace.extend(trace)
    return [result for result, _ in results]
