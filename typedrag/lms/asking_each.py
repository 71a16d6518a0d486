"""Questions to an LM about many items at once, in threads, where some may fail."""

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
"""The reason why an item has no result."""


def ask_each(
    ask: Callable[[T], R],
    items: Sequence[T],
    threads: int,
    on_done: Callable[[int], object] = lambda done: None,
    *,
    faults: Faults | None = None,
) -> list[R | Failed]:
    """The results of asking about each item, in the items' order; a failure where there is no result.

    Args:
        ask: Asks about one item, in a thread. A `StepFailed` that it raises fails this item alone, and so does
            a `CallFailed` if the LM goes on to answer others.
        items: Any number of them.
        threads: Items under way at once.
        on_done: Called with the number of items done so far.
        faults: The faults of a larger run that these items belong to; its caller settles them in the end. By default
            they are settled here.

    Raises:
        LMUnavailable: If the LM cannot be used. Items that have not begun are not asked about.
        BaseException: The first other error that `ask` raises, once the calls under way have ended.

    Example:
        >>> ask_each(len, ["a", "to"], threads=2)
        [1, 2]
    """
    held = Faults() if faults is None else faults
    results: dict[int, R | Failed] = {}
    for (place, _), result in ask_as_they_come(lambda numbered: ask(numbered[1]), enumerate(items), threads, held):
        results[place] = result
        on_done(len(results))
    if faults is None:
        held.settle()
    return [results[place] for place in range(len(results))]


def ask_as_they_come(
    ask: Callable[[T], R], items: Iterable[T], threads: int, faults: Faults
) -> Iterator[tuple[T, R | Failed]]:
    """Yield items with their results as these come; see `ask_each`. Items are taken one by one, as threads are free.

    Raises:
        LMUnavailable: If the LM cannot be used, as far as that shows before the faults are settled.
    """

    def ask_about(item: T) -> tuple[T, R | Failed, Callable[[], None]]:
        try:
            with unless_all_is_refused() as calls:
                result = ask(item)
        except StepFailed as error:
            return item, error, faults.answer if calls.any else _nothing
        except CallFailed as error:
            return item, error, partial(faults.hold, error)
        return item, result, faults.answer if calls.any else _nothing  # a cached reply says nothing about the LM

    def next_job() -> Callable[[], tuple[T, R | Failed, Callable[[], None]]] | None:
        job = next(jobs, None)
        return partial(fail, faults.fault) if job and faults.fault else job

    jobs = (partial(ask_about, item) for item in items)
    for item, result, tell in run_jobs(next_job, threads):
        tell()
        yield item, result


def _nothing() -> None:
    """Leave the faults as they are: the LM was not asked."""
