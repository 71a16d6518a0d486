"""Doing many things at once, in threads that carry the context."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")


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
    with ThreadPoolExecutor(threads) as pool:
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
