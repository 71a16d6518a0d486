"""Work on many things at once, in threads that carry the context."""

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
"""Calls of `run_in_thread` that run at once in a process, unless `limit_threads` says otherwise. asyncio's own pool has
only four more threads than there are processors."""
_limit = THREADS


def limit_threads(limit: int) -> None:
    """Let at most `limit` calls of `run_in_thread` run at once in this process; others wait for their turn."""
    global _limit
    _limit = limit


class _Task:
    """The task that waits for a function in a thread, with the calls that end when the task does."""

    def __init__(self) -> None:
        self.cancelled = False
        self.calls: set[Future[Any]] = set()
        self.lock = threading.Lock()


async def run_in_thread(function: Callable[[], T]) -> T:
    """The result of a function, run in a thread that carries the context while the event loop continues.

    Where the task is cancelled, calls of `await_call` end, and the function at its next `stop_if_cancelled`.
    """
    task = _Task()

    def run() -> T:
        with use_context(task=task):
            return function()

    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_executor(os.getpid(), _limit), carry(run))
    except asyncio.CancelledError:
        with task.lock:
            task.cancelled, calls = True, tuple(task.calls)
        for call in calls:
            call.cancel()
        raise


@cache  # one for each process: threads do not come along to a process that is forked
def _executor(process: int, threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="typedrag")


def stop_if_cancelled() -> None:
    """Raise if nobody waits any more for what runs in this context."""
    if (task := call_context().task) is not None and task.cancelled:
        raise asyncio.CancelledError


def await_call(call: Future[T]) -> T:
    """The result of a call, for which this thread waits; the call is cancelled if nobody waits for this context."""
    task: _Task = call_context().task or _Task()
    with task.lock:
        task.calls.add(call)
    if task.cancelled:
        call.cancel()
    try:
        return call.result()
    except CancelledError:
        raise asyncio.CancelledError from None
    finally:
        with task.lock:
            task.calls.discard(call)


def run_jobs(next_job: Callable[[], Callable[[], T] | None], threads: int) -> Iterator[T]:
    """Run jobs, so many at once, and yield the result of each as it ends.

    `next_job` returns the next job; None if there is none now. It is called again as long as jobs are under way, since
    a result may lead to further jobs. A signal that ends the process, such as Ctrl-C, waits until the jobs under way
    have ended and been yielded, for `GRACE` seconds at most; a second one does not wait.
    """
    running: set[Future[T]] = set()
    fault: BaseException | None = None
    with _hold_signals() as signals:
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
                if signals.first is not None and time.monotonic() > signals.came + GRACE:
                    signals.deliver()
        signals.deliver()
    if fault is not None:
        raise fault


class _HeldSignals:
    """The signals that would have ended this process, by SIGINT or SIGTERM, had they not been held: the first one, and
    when it came."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.came = 0.0
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        # a shell lets what it runs in the background ignore Ctrl-C
        self.handlers = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}

    def hold(self, number: int, frame: FrameType | None) -> None:
        """Hold a signal, as its handler; a second one is not held."""
        if self.first is not None:
            self.deliver(number)
        self.first, self.came = number, time.monotonic()

    def deliver(self, number: int | None = None) -> None:
        """Let a signal do what it would have done, by default the held one, if there is one."""
        if (number := number or self.first) is None:
            return
        handler = self.handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, None)
        elif handler == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


_signals: _HeldSignals | None = None


@contextmanager
def _hold_signals() -> Iterator[_HeldSignals]:
    """Hold signals that would end this process within; they wait for whoever calls `deliver`.

    Only the main thread gets signals, and within another `_hold_signals` they are already held.
    """
    global _signals
    if threading.current_thread() is not threading.main_thread():
        yield _HeldSignals()
        return
    if _signals is not None:
        yield _signals
        return
    held = _signals = _HeldSignals()
    try:
        for number in held.handlers:
            signal.signal(number, held.hold)
        yield held
    finally:
        for number, handler in held.handlers.items():
            if signal.getsignal(number) == held.hold:
                signal.signal(number, handler)
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
def reuse_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
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
