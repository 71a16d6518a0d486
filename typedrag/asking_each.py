"""Asking about many things at once, in threads, where an LM may fail at some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from typedrag.asking import unless_all_is_refused
from typedrag.errors import CallFailed, StepFailed
from typedrag.faults import Faults, fail
from typedrag.threads import run_jobs

T = TypeVar("T")
R = TypeVar("R")

Failed: TypeAlias = StepFailed | CallFailed
"""Why there is nothing about one thing."""


def ask_each(
    ask: Callable[[T], R],
    items: Sequence[T],
    threads: int,
    on_done: Callable[[int], object] = lambda done: None,
    *,
    faults: Faults | None = None,
) -> list[R | Failed]:
    """What is said about each of the items, in their order, or why there is nothing.

    Args:
        ask: Asks about one, in a thread. What it raises as `StepFailed` is a failure of this one alone, and so is
            `CallFailed` where the LM goes on to answer others.
        items: In any number.
        threads: Items under way at once.
        on_done: Called with the number done so far.
        faults: Of asking that these are a part of, whose caller settles them in the end; by default they are
            settled here.

    Raises:
        LMUnavailable: If the LM cannot be used. Items that have not begun are not asked about.
        BaseException: The first other that `ask` raises, once the calls under way have ended.

    Example:
        >>> ask_each(len, ["a", "to"], threads=2)
        [1, 2]
    """
    held = Faults() if faults is None else faults
    results: dict[int, R | Failed] = {}

    def ask_about(place: int) -> Callable[[], None]:
        try:
            with unless_all_is_refused() as calls:
                results[place] = ask(items[place])
        except StepFailed as error:
            results[place] = error
        except CallFailed as error:
            results[place] = error
            return partial(held.hold, error)
        return held.answer if calls.any else lambda: None  # what was kept says nothing of the LM

    def next_job() -> Callable[[], Callable[[], None]] | None:
        job = next(jobs, None)
        return partial(fail, held.fault) if job and held.fault else job

    jobs = (partial(ask_about, place) for place in range(len(items)))
    for done, take in enumerate(run_jobs(next_job, threads), 1):
        take()
        on_done(done)
    if faults is None:
        held.settle()
    return [results[place] for place in range(len(items))]
