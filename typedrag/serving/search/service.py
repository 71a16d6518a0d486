"""Searches an index for clients, within limits; searches that wait are made together in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import TypeVar

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from typedrag.retrieval import BM25Retriever, DenseRetriever, HybridRetriever, IndexRetriever, parts_of
from typedrag.retrieval.opening import tuned
from typedrag.retrieval.search.bm25 import MAX_QUERY_TERMS
from typedrag.retrieval.search.gathering import Gatherer, Rankings
from typedrag.retrieval.search.remote import BM25Settings, Part, SearchReply, SearchRequest, ServedIndex
from typedrag.serving.errors import STOPPING, Fault, Refused, busy_error
from typedrag.serving.logs import request_line
from typedrag.serving.metrics import Metrics
from typedrag.serving.service import run_in_background, wait_until
from typedrag.serving.settings import HTTPLimits

T = TypeVar("T")

_MOST_TUNED = 8
"""Retrievers that are kept open for settings of BM25 other than the index's."""
_Kind = tuple[int, BM25Settings, Part | None]


class IndexSettings(HTTPLimits):
    """The limits of an index server; some have other defaults than those of a server of programs."""

    running: PositiveInt = 1
    """Searches at once. Each takes all requests that wait, and one keeps all cores busy."""
    queue: NonNegativeInt = 1024
    """Requests that wait for their turn; more are refused with 429."""
    deadline: PositiveFloat = 30.0
    """Seconds from a request to its passages, the wait included; then it ends with 504."""
    body_bytes: PositiveInt = 1_048_576
    """Size of a request's body; a larger one is refused with 413."""
    batch: PositiveInt = 256
    """The most queries of a request."""
    rate: PositiveInt = 1_000_000
    """Requests a minute of a key that has no rate of its own; without keys, of a client's address."""


class SearchService:
    """Searches a retriever for clients, and refuses requests beyond its limits.

    Args:
        retriever: The retriever to search.
        settings: The limits.
    """

    refusing = False

    def __init__(self, retriever: IndexRetriever, settings: IndexSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.stopping = False
        self.retriever = retriever
        self._tuned = lru_cache(_MOST_TUNED)(lambda bm25: tuned(retriever, bm25.given))
        self._gatherer: Gatherer[_Kind] = Gatherer(
            self._search, threads=settings.running, most=settings.batch, apart=True
        )
        self._under_way = 0

    async def search(self, request: SearchRequest) -> SearchReply:
        """The passages for the queries of a request.

        Raises:
            Refused: If too many requests wait, the server is stopping, there are too many queries, one is too long, or
                the retriever lacks the part.
            TimeoutError: If the deadline passes.
            RetrievalError: If the index cannot be searched.
        """
        if len(request.queries) > self.settings.batch:
            raise Refused(Fault(422, "batch_too_large", f"A request has {self.settings.batch} queries at most."))
        if request.part and not getattr(parts_of(self.retriever), request.part):
            raise Refused(Fault(422, "no_such_part", f"The {request.part} part is not searched here."))
        if any(len(query) > MAX_QUERY_TERMS and len(set(query.split())) > MAX_QUERY_TERMS for query in request.queries):
            raise Refused(Fault(422, "query_too_long", f"A query has {MAX_QUERY_TERMS:,} different words at most."))
        request_line().questions.extend(request.queries)
        kind = request.k, request.bm25, request.part
        submit = partial(self._gatherer.submit, kind, request.queries)
        passages = await self._in_turn(lambda: asyncio.wrap_future(submit()))
        return SearchReply(index=self.retriever.identity["index"], passages=passages)

    async def served(self, bm25: BM25Settings) -> ServedIndex:
        """A description of the index and its retriever, with these settings of BM25.

        Raises:
            Refused: If too many requests wait, or the server is stopping.
            RetrievalError: If the index has changed since it was opened.
        """
        retriever = await self._in_turn(lambda: run_in_background(partial(self._tuned, bm25)))
        return _described(retriever, self.settings.batch)

    async def drain(self) -> None:
        """Refuse new requests, and wait for those under way until the settings' limit."""
        self.stopping = True
        await wait_until(lambda: not self._under_way, self.settings.drain)

    async def _in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        if self.stopping:
            raise Refused(STOPPING)
        if self._under_way >= self.settings.running + self.settings.queue:
            raise busy_error(1)
        self._under_way += 1
        try:
            return await asyncio.wait_for(work(), self.settings.deadline)
        finally:
            self._under_way -= 1

    def _search(self, kind: _Kind, queries: list[str]) -> Rankings:
        k, bm25, part = kind
        retriever = self._tuned(bm25)
        return (getattr(parts_of(retriever), part) if part else retriever).search(queries, k)


def _described(retriever: IndexRetriever, batch: int) -> ServedIndex:
    spec = str(retriever.identity.get("retriever", "bm25"))
    sparse, dense = parts_of(retriever)
    bm25 = sparse.manifest if isinstance(sparse, BM25Retriever) else None
    embedded = dense.manifest if isinstance(dense, DenseRetriever) else None
    without = {"sources"}
    manifest = bm25.model_dump(mode="json", exclude=without) if bm25 else {}
    if embedded:
        manifest["dense"] = embedded.model_dump(mode="json", exclude=without)
    counted = bm25 or embedded
    return ServedIndex(
        identity=retriever.identity,
        retriever=spec,
        weight=retriever.weight if isinstance(retriever, HybridRetriever) else None,
        language=bm25.language if bm25 else "",
        passages=counted.passages if counted else 0,
        batch=batch,
        manifest=manifest,
    )
