"""Batches searches: those that wait while others run are made in one call."""

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
class _Search(Generic[K]):
    kind: K
    queries: Sequence[str]
    future: Future[Rankings] = field(default_factory=Future)


class Gatherer(Generic[K]):
    """Batches waiting searches of the same kind into one call, made as soon as a thread is free.

    Args:
        search: The function that searches, given a kind and the queries of all searches of a batch.
        threads: The number of calls at once.
        most: The most queries of a call; a single search may have more.
        apart: If True, the searches of a call that fails are made again one by one, so that a bad one fails alone; for
            calls that fail at once.
    """

    def __init__(
        self, search: Callable[[K, list[str]], Rankings], *, threads: int, most: int, apart: bool = False
    ) -> None:
        self._search = search
        self._most = most
        self._apart = apart
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="typedrag-search")
        self._waiting: deque[_Search[K]] = deque()
        self._lock = Lock()

    def submit(self, kind: K, queries: Sequence[str]) -> Future[Rankings]:
        """A future of the passages for some queries; if it is cancelled in time, they are not searched."""
        search = _Search(kind, queries)
        with self._lock:
            self._waiting.append(search)
        self._pool.submit(self._call)  # finds nothing left to do where an earlier call took this search along
        return search.future

    def _call(self) -> None:
        with self._lock:
            batch = self._next()
        if batch := [search for search in batch if search.future.set_running_or_notify_cancel()]:
            self._make(batch)

    def _make(self, batch: list[_Search[K]]) -> None:
        try:
            rankings = iter(self._search(batch[0].kind, [query for search in batch for query in search.queries]))
        except BaseException as error:
            for search in batch:
                if self._apart and len(batch) > 1:
                    self._make([search])
                else:
                    search.future.set_exception(error)
        else:
            for search in batch:
                search.future.set_result(list(islice(rankings, len(search.queries))))

    def _next(self) -> list[_Search[K]]:
        batch: list[_Search[K]] = []
        left: deque[_Search[K]] = deque()
        room = self._most
        for search in self._waiting:
            fits = not batch or (search.kind == batch[0].kind and len(search.queries) <= room)
            (batch if fits else left).append(search)
            room -= len(search.queries) if fits else 0
        self._waiting = left
        return batch
