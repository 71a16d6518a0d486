"""Searches that wait while others run, made together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

from typedrag.records import Passage

Rankings = list[list[Passage]]
"""A list of passages for each query."""
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, eq=False)
class _Asked(Generic[K]):
    kind: K
    queries: Sequence[str]
    future: Future[Rankings] = field(default_factory=Future)


class Gatherer(Generic[K]):
    """Hands searches on, in one call all those of a kind that wait. None waits longer than for a free thread.

    Args:
        search: Called with a kind and the queries of some searches.
        threads: Calls at once.
        most: Queries of a call, unless one search alone has more.
    """

    def __init__(self, search: Callable[[K, list[str]], Rankings], *, threads: int, most: int) -> None:
        self._search = search
        self._most = most
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="typedrag-search")
        self._waiting: deque[_Asked[K]] = deque()
        self._lock = Lock()

    def submit(self, kind: K, queries: Sequence[str]) -> Future[Rankings]:
        """The passages for some queries, once they are there; what is cancelled before its call is not searched."""
        asked = _Asked(kind, queries)
        with self._lock:
            self._waiting.append(asked)
        self._pool.submit(self._call)  # finds nothing left to do where an earlier call took this search along
        return asked.future

    def _call(self) -> None:
        with self._lock:
            batch = self._next()
        batch = [asked for asked in batch if asked.future.set_running_or_notify_cancel()]
        if not batch:
            return
        try:
            found = iter(self._search(batch[0].kind, [query for asked in batch for query in asked.queries]))
        except BaseException as error:
            for asked in batch:
                asked.future.set_exception(error)
        else:
            for asked in batch:
                asked.future.set_result(list(islice(found, len(asked.queries))))

    def _next(self) -> list[_Asked[K]]:
        batch: list[_Asked[K]] = []
        left: deque[_Asked[K]] = deque()
        room = self._most
        for asked in self._waiting:
            fits = not batch or (asked.kind == batch[0].kind and len(asked.queries) <= room)
            (batch if fits else left).append(asked)
            room -= len(asked.queries) if fits else 0
        self._waiting = left
        return batch
