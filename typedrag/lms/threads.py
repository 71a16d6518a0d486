"""Work on many things at once, in threads that carry the context."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

T = TypeVar("T")


AWAITED_AT_ONCE = 64
"""Calls of `in_thread` that a process has under way at once; others wait for their turn. asyncio's own threads are
four more than the processors."""

_cancelled: ContextVar[threading.Event | None] = ContextVar("cancelled", default=None)


async def in_thread(function: Callable[[], T]) -> T:
    """What a function gives, run in a thread that carries the context, while the event loop goes on.

    Where the task is cancelled, the function ends at its next `stop_if_cancelled`.
    """
    cancelled = threading.Event()

    def run() -> T:
        _cancelled.set(cancelled)
        return function()

    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_executor(os.getpid()), contextvars.copy_context().run, run)
    except asyncio.CancelledError:
        cancelled.set()
        raise


def stop_if_cancelled() -> None:
    """End what runs in this context, if nobody waits for it any more.

    Raises:
        CancelledError: No `Exception`: it passes through fallbacks.
    """
    if (cancelled := _cancelled.get()) is not None and cancelled.is_set():
        raise asyncio.CancelledError


@cache
def _executor(process: int) -> ThreadPoolExecutor:  # threads do not come along to a process that is forked
    return ThreadPoolExecutor(AWAITED_AT_ONCE, thread_name_prefix="typedrag")


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
