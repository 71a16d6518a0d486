"""Asking about many things at once, in threads, where an LM may fail at some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from typedrag.errors import CallFailed, StepFailed
from typedrag.lms.asking import unless_all_is_refused
from typedrag.lms.faults import Faults, fail
from typedrag.lms.threads import run_jobs

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
    for (place, _), said in ask_as_they_come(lambda numbered: ask(numbered[1]), enumerate(items), threads, held):
        results[place] = said
        on_done(len(results))
    if faults is None:
        held.settle()
    return [results[place] for place in range(len(results))]


def ask_as_they_come(
    ask: Callable[[T], R], items: Iterable[T], threads: int, faults: Faults
) -> Iterator[tuple[T, R | Failed]]:
    """Items with what is said about each, as it comes; see `ask_each`. They are taken one by one, as threads are free.

    Raises:
        LMUnavailable: If the LM cannot be used, as far as that shows before the faults are settled.
    """

    def ask_about(item: T) -> tuple[T, R | Failed, Callable[[], None]]:
        try:
            with unless_all_is_refused() as calls:
                said = ask(item)
        except StepFailed as error:
            return item, error, faults.answer if calls.any else _nothing
        except CallFailed as error:
            return item, error, partial(faults.hold, error)
        return item, said, faults.answer if calls.any else _nothing  # what was kept says nothing of the LM

    def next_job() -> Callable[[], tuple[T, R | Failed, Callable[[], None]]] | None:
        job = next(jobs, None)
        return partial(fail, faults.fault) if job and faults.fault else job

    jobs = (partial(ask_about, item) for item in items)
    for item, said, tell in run_jobs(next_job, threads):
        tell()
        yield item, said


def _nothing() -> None:
    """What there is to tell of an LM that was not asked."""
