"""Work on many things at once, in threads that carry the context."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from typedrag.call_context import call_context, carry, use_context

T = TypeVar("T")


AWAITED_AT_ONCE = 64
"""Calls of `in_thread` that run at once in a process, unless `limit_awaited` says otherwise. asyncio's own pool has
only four more threads than there are processors."""


class _Task:
    """The task that waits for a function in a thread, with the calls that end when the task does."""

    def __init__(self) -> None:
        self.cancelled = False
        self._calls: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """End its calls, and those that begin later."""
        with self._lock:
            self.cancelled, calls = True, tuple(self._calls)
        for call in calls:
            call.cancel()

    def result(self, call: Future[T]) -> T:
        """The result of a call."""
        with self._lock:
            self._calls.add(call)
        if self.cancelled:
            call.cancel()
        try:
            return call.result()
        finally:
            with self._lock:
                self._calls.discard(call)


_awaited = AWAITED_AT_ONCE


def limit_awaited(limit: int) -> None:
    """Let at most `limit` calls of `in_thread` run at once in this process; others wait for their turn."""
    global _awaited
    _awaited = limit


async def in_thread(function: Callable[[], T]) -> T:
    """The result of a function, run in a thread that carries the context while the event loop goes on.

    Where the task is cancelled, calls of `result_of` end, and the function at its next `stop_if_cancelled`.
    """
    task = _Task()

    def run() -> T:
        with use_context(task=task):
            return function()

    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_executor(os.getpid(), _awaited), carry(run))
    except asyncio.CancelledError:
        task.cancel()
        raise


def stop_if_cancelled() -> None:
    """Raise if nobody waits any more for what runs in this context.

    Raises:
        CancelledError: It is no `Exception`, so that it passes through fallbacks.
    """
    if (task := call_context().task) is not None and task.cancelled:
        raise asyncio.CancelledError


def result_of(call: Future[T]) -> T:
    """The result of a call, for which this thread waits; the call is cancelled if nobody waits for this context.

    Raises:
        CancelledError: asyncio's, if it was cancelled.
    """
    try:
        task: _Task = call_context().task or _Task()
        return task.result(call)
    except CancelledError:
        raise asyncio.CancelledError from None


@cache
def _executor(process: int, threads: int) -> ThreadPoolExecutor:
    # one for each process: threads do not come along to a process that is forked
    return ThreadPoolExecutor(threads, thread_name_prefix="typedrag")


def run_jobs(next_job: Callable[[], Callable[[], T] | None], threads: int) -> Iterator[T]:
    """Run jobs, and yield the result of each as it ends.

    Args:
        next_job: Returns the next job; None if there is none now. It is called again as long as jobs are
            under way, since a result may lead to further jobs.
        threads: Jobs under way at once.

    Raises:
        BaseException: The first error of a job, once the jobs under way have ended and been yielded.

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
                running.add(pool.submit(carry(job)))
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
    """Threads that are waited for at the end, except after a signal: an LM's calls may hang for minutes."""
    pool, interrupted = ThreadPoolExecutor(threads), False
    try:
        yield pool
    except (KeyboardInterrupt, GeneratorExit):
        interrupted = True
        raise
    finally:
        pool.shutdown(wait=not interrupted, cancel_futures=interrupted)
