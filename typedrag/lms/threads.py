"""Work on many things at once, in threads that carry the context."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any, TypeVar

from typedrag.core.call_context import call_context, carry, use_context

T = TypeVar("T")


GRACE = 5.0
"""Seconds in which jobs under way may end after a signal that ends the process: an LM's calls may hang for minutes."""
_LOOK_AGAIN = 0.2
THREADS = 64
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


_awaited = THREADS


def limit_threads(limit: int) -> None:
    """Let at most `limit` calls of `in_thread` run at once in this process; others wait for their turn."""
    global _awaited
    _awaited = limit


async def run_in_thread(function: Callable[[], T]) -> T:
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
    """Raise if nobody waits any more for what runs in this context."""
    if (task := call_context().task) is not None and task.cancelled:
        raise asyncio.CancelledError


def wait_for(call: Future[T]) -> T:
    """The result of a call, for which this thread waits; the call is cancelled if nobody waits for this context."""
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

    A signal that ends the process, such as Ctrl-C, waits until the jobs under way have ended and been yielded, for
    `GRACE` seconds at most; a second one does not wait.

    Example:
        >>> jobs = iter([lambda: 1, lambda: 2])
        >>> sorted(run_jobs(lambda: next(jobs, None), threads=2))
        [1, 2]
    """
    running: set[Future[T]] = set()
    fault: BaseException | None = None
    with hold_signals() as signals:
        with thread_pool(threads) as pool:
            while True:
                while not (fault or signals.first) and len(running) < threads and (job := next_job()):
                    running.add(pool.submit(carry(job)))
                if not running:
                    break
                finished, running = wait(running, _LOOK_AGAIN, FIRST_COMPLETED)
                for future in finished:
                    if error := future.exception():
                        fault = fault or error
                    else:
                        yield future.result()
                if signals.overdue:
                    signals.deliver()
        signals.deliver()
    if fault is not None:
        raise fault


class HeldSignals:
    """The signals that would have ended this process, by SIGINT or SIGTERM, had they not been held.

    Attributes:
        first: The first one; None if none came.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self._came = 0.0
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        # a shell lets what it runs in the background ignore Ctrl-C
        self._handlers = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}

    def hold(self, number: int, frame: FrameType | None) -> None:
        """Hold a signal, as its handler; a second one is not held."""
        if self.first is not None:
            self._handle(number)
        self.first, self._came = number, time.monotonic()

    @property
    def overdue(self) -> bool:
        """True if a signal has been held for `GRACE` seconds."""
        return self.first is not None and time.monotonic() > self._came + GRACE

    def deliver(self) -> None:
        """Let the held signal do what it would have done, if there is one."""
        if self.first is not None:
            self._handle(self.first)

    def _handle(self, number: int) -> None:
        handler = self._handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, None)
        elif handler == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def __enter__(self) -> None:
        for number in self._handlers:
            signal.signal(number, self.hold)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == self.hold:
                signal.signal(number, handler)


_signals: HeldSignals | None = None


@contextmanager
def hold_signals() -> Iterator[HeldSignals]:
    """Hold signals that would end this process within; they wait for whoever calls `deliver`.

    Only the main thread gets signals, and within another `signals_held` they are already held.
    """
    global _signals
    if threading.current_thread() is not threading.main_thread():
        yield HeldSignals()
        return
    if _signals is not None:
        yield _signals
        return
    _signals = HeldSignals()
    try:
        with _signals:
            yield _signals
    finally:
        _signals = None


@contextmanager
def thread_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that are waited for at the end, except after a signal: an LM's calls may hang for minutes."""
    pool, interrupted = ThreadPoolExecutor(threads), False
    try:
        yield pool
    except (KeyboardInterrupt, GeneratorExit):
        interrupted = True
        raise
    finally:
        pool.shutdown(wait=not interrupted, cancel_futures=interrupted)


_idle: dict[tuple[int, int], list[ThreadPoolExecutor]] = {}


@contextmanager
def reused_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for jobs that end within; they are used again later, as starting them takes longer than many a job."""
    idle = _idle.setdefault((os.getpid(), threads), [])  # threads do not come along to a process that is forked
    try:
        pool = idle.pop()
    except IndexError:
        pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    except (KeyboardInterrupt, GeneratorExit):
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    idle.append(pool)
