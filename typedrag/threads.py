"""Work on many items at once, in threads that carry the context."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_threads(function: Callable[[T], R], items: Sequence[T], threads: int, on_done: Callable[[int], None]) -> list[R]:
    """Apply a function to all items in threads that carry the context; results in the order of the items.

    A fault ends it, once what is under way has ended: with what was stored, the next run goes on.

    Args:
        function: Called in threads.
        items: In any number.
        threads: Items under way at once.
        on_done: Called with the number done so far.

    Raises:
        Exception: The first that the function raised.
    """
    results: dict[int, R] = {}
    fault: BaseException | None = None
    todo: Iterator[tuple[int, T]] = iter(enumerate(items))
    with ThreadPoolExecutor(threads) as pool:
        running: dict[Future[R], int] = {}
        while True:
            while fault is None and len(running) < threads and (job := next(todo, None)):
                place, item = job
                running[pool.submit(contextvars.copy_context().run, function, item)] = place
            if not running:
                break
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                place = running.pop(future)
                if error := future.exception():
                    fault = fault or error
                else:
                    results[place] = future.result()
            on_done(len(results))
    if fault is not None:
        raise fault
    return [results[place] for place in range(len(items))]
