"""Work on many things at once, in threads that carry the context."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def run_jobs(next_job: Callable[[], Callable[[], T] | None], threads: int) -> Iterator[T]:
    """Run jobs, and yield what each gives as it ends.

    Args:
        next_job: Gives the next job; None if there is none now. It is asked again as long as jobs are
            under way: what one gives may lead to others, or to none.
        threads: Jobs under way at once.

    Raises:
        BaseException: The first that a job raises, once those under way have ended and been yielded.

    Example:
        >>> jobs = iter([lambda: 1, lambda: 2])
        >>> sorted(run_jobs(lambda: next(jobs, None), threads=2))
        [1, 2]
    """
    running: set[Future[T]] = set()
    fault: BaseException | None = None
    with workers(threads) as pool:
        while True:
            while fault is None and len(running) < threads and (job := next_job()):
                running.add(pool.submit(contextvars.copy_context().run, job))
            if not running:
                break
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                if error := future.exception():
                    fault = fault or error
                else:
                    yield future.result()
    if fault is not None:
        raise fault


@contextmanager
def workers(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that are waited for at the end, unless a signal ends it: an LM's calls may hang for minutes."""
    pool, interrupted = ThreadPoolExecutor(threads), False
    try:
        yield pool
    except (KeyboardInterrupt, GeneratorExit):
        interrupted = True
        raise
    finally:
        pool.shutdown(wait=not interrupted, cancel_futures=interrupted)


def in_threads(function: Callable[[T], R], items: Sequence[T], threads: int, on_done: Callable[[int], None]) -> list[R]:
    """Apply a function to all items in threads; results in the order of the items.

    Args:
        function: Called in threads.
        items: In any number.
        threads: Items under way at once.
        on_done: Called with the number done so far.

    Raises:
        BaseException: The first that the function raised, once the calls under way have ended.
    """
    results: dict[int, R] = {}
    jobs = iter([lambda place=place, item=item: (place, function(item)) for place, item in enumerate(items)])
    for place, result in run_jobs(lambda: next(jobs, None), threads):
        results[place] = result
        on_done(len(results))
    return [results[place] for place in range(len(items))]
