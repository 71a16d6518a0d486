"""Retrievers that search an index through `typedrag index serve`, on this machine or another."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, islice
from threading import Lock
from typing import Annotated, Any, Generic, Literal, Self, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.proxies import http_client
from typedrag.core.records import Passage
from typedrag.core.registry import NoDeepcopy
from typedrag.files.text_files import WholeText, drop_half_characters
from typedrag.retrieval.index.bm25_part import check_parameters
from typedrag.retrieval.search.bm25 import MAX_QUERY_TERMS, BM25Setting
from typedrag.retrieval.search.hybrid import HybridRetriever

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
M = TypeVar("M", bound=BaseModel)
KEY = "TYPEDRAG_RETRIEVER_KEY"  # the environment variable of the key to an index server
MAX_PASSAGES = 1000  # passages of a query
MAX_REPLY = 10_000  # passages of a reply, which are about 10 MB
_IN_FLIGHT = 2
"""Requests at once. While one is under way, other searches wait for the next; more requests would each be smaller."""
_TRIES = 6
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 30.0
_TIMES = httpx.Timeout(60.0, connect=5.0)

Part = Literal["sparse", "dense"]


class BM25Settings(BaseModel):
    """Settings of BM25 that are not the index's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    k1: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    b: float | None = Field(default=None, ge=0, le=1)


class SearchRequest(BaseModel):
    """Queries, and how they are searched."""

    model_config = ConfigDict(extra="forbid")

    queries: list[Annotated[WholeText, Field(max_length=MAX_QUERY_TERMS)]] = Field(min_length=1)
    k: int = Field(ge=1, le=MAX_PASSAGES, description="Number of passages for each query.")
    bm25: BM25Settings = BM25Settings()
    part: Part | None = Field(default=None, description="The part of a hybrid retriever to search; by default both.")

    @model_validator(mode="after")
    def _check_reply(self) -> Self:
        if len(self.queries) * self.k > MAX_REPLY:
            raise ValueError(f"a reply has {MAX_REPLY:,} passages at most, for all queries together")
        return self


class SearchReply(BaseModel):
    """The passages of each query, best first, and the fingerprint of their index."""

    index: str
    passages: list[list[Passage]]


class PassageReply(BaseModel):
    """The passage of an id; None if the index holds none."""

    passage: Passage | None


class ServedIndex(BaseModel):
    """The index and retriever that a server has open, with its limits.

    Attributes:
        identity: The identity of the server's retriever, which remote retrievers share.
        retriever: The spec of the retriever: `bm25`, `dense`, `hybrid` or `hybrid:WEIGHT`.
        weight: The weight of the dense part; None if ranks are fused or there is one part.
        language: The language of the passages; empty if there is no BM25 part.
        passages: The number of passages.
        batch: The most queries of a request.
        manifest: The manifest that `typedrag index info` prints, without the names of files.
    """

    identity: dict[str, Any]
    retriever: str
    weight: float | None
    language: str
    passages: int
    batch: int
    manifest: dict[str, Any]


class Batcher(Generic[K, R]):
    """Batches queries: those of a kind that wait while others are searched go together in one call.

    Args:
        search: Gives a result for each query of a batch.
        threads: Calls at once.
        most: Gives the number of queries of a call, for each kind; more are searched at once only if they come at once.
    """

    def __init__(
        self, search: Callable[[K, list[str]], Sequence[R]], *, threads: int, most: Callable[[K], int]
    ) -> None:
        self._search, self.most = search, most
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="typedrag-search")
        self._waiting: dict[K, list[tuple[Sequence[str], Future[list[R]]]]] = {}
        self._lock = Lock()

    def submit(self, kind: K, queries: Sequence[str]) -> Future[list[R]]:
        """A future of the results for some queries; if it is cancelled in time, they are not searched."""
        future: Future[list[R]] = Future()
        with self._lock:
            self._waiting.setdefault(kind, []).append((queries, future))
        self._pool.submit(self._call)  # finds nothing to do if an earlier call has taken these queries along
        return future

    def _call(self) -> None:
        with self._lock:
            if not self._waiting:
                return
            kind, waiting = next(iter(self._waiting.items()))
            del self._waiting[kind]
            most = self.most(kind)
            count = max(1, sum(size <= most for size in accumulate(len(queries) for queries, _ in waiting)))
            if rest := waiting[count:]:
                self._waiting[kind] = rest  # after other kinds
        batch = [(queries, future) for queries, future in waiting[:count] if future.set_running_or_notify_cancel()]
        try:
            results = iter(self._search(kind, [query for queries, _ in batch for query in queries]) if batch else ())
            for queries, future in batch:
                future.set_result(list(islice(results, len(queries))))
        except BaseException as error:
            for _, future in batch:
                future.set_exception(error)


def check_address(address: str) -> None:
    """Check that an address has a host and at most a port and a path."""
    hint = "Write it like http://HOST:PORT"
    try:
        url = urlsplit(address)
        port = url.port
    except ValueError:
        raise InputError(f"'{address}' is no address of an index server", hint) from None
    if url.username is not None or url.query or url.fragment:
        raise InputError(f"'{address}' says more than an address", f"{hint}; a key belongs into {KEY}")
    if not url.hostname or port == 0:
        raise InputError(f"'{address}' is no address of an index server", hint)


def open_remote(address: str, bm25: Mapping[BM25Setting, float]) -> RemoteRetriever | RemoteHybrid:
    """A retriever that searches on an index server; `bm25` are the settings that differ from the index's."""
    check_parameters(bm25.get("k1", 0), bm25.get("b", 0))
    whole = RemoteRetriever(_IndexServer(address, bm25))
    return RemoteHybrid(whole) if whole.served.retriever.startswith("hybrid") else whole


class _IndexServer:
    """A connection to an index server, which retries if the server is busy or out of reach for a moment."""

    def __init__(self, address: str, bm25: Mapping[BM25Setting, float]) -> None:
        check_address(address)
        self.address, self._bm25 = address.rstrip("/"), dict(bm25)
        key = os.environ.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = http_client(self.address, base_url=self.address, headers=headers, timeout=_TIMES)
        self.served = self._ask(ServedIndex, "GET", "/v1/index", tries=1, params=self._bm25)
        self.batcher = Batcher(
            self._search, threads=_IN_FLIGHT, most=lambda kind: min(self.served.batch, MAX_REPLY // kind[0])
        )

    def _search(self, kind: tuple[int, Part | None], queries: list[str]) -> list[list[Passage]]:
        k, part = kind
        body = {"queries": list(map(drop_half_characters, queries)), "k": k, "bm25": self._bm25, "part": part}
        reply = self._ask(SearchReply, "POST", "/v1/search", json=body)
        if reply.index != self.served.identity["index"]:
            raise RetrievalError(f"{self.address} serves another index than before", "Start the run again")
        return reply.passages

    def passage(self, passage_id: str) -> Passage | None:
        return self._ask(PassageReply, "GET", "/v1/passage", params={"id": passage_id}).passage

    def _ask(self, model: type[M], method: str, path: str, *, tries: int = _TRIES, **request: Any) -> M:
        for attempt in range(tries):
            wait = _FIRST_WAIT * 2**attempt
            try:
                reply = self._client.request(method, path, **request)
                if reply.is_success:
                    return model.model_validate_json(reply.content)
            except httpx.ReadTimeout as error:
                raise self._error(f"has not answered in {_TIMES.read:g} seconds", "Ask it by fewer workers") from error
            except httpx.TransportError as error:
                failure = self._error(f"cannot be reached: {error}", "Start it: typedrag index serve --index FOLDER")
            except ValidationError as error:
                raise self._stranger_error() from error
            else:
                try:
                    failure = self._error(f"refuses: {reply.json()['error']['message']}")
                except (ValueError, KeyError, TypeError):
                    failure = self._stranger_error(f" (status {reply.status_code})")
                if reply.status_code in (401, 403):
                    raise self._error("lets in nobody without a key", f"Set {KEY} to one that typedrag keys has made")
                if reply.status_code not in (429, 503):
                    raise failure
                later = reply.headers.get("Retry-After", "")
                wait = max(wait, min(float(later), _LONGEST_WAIT) if later.isdecimal() else 0)
            if attempt + 1 < tries:
                time.sleep(wait * random.uniform(1, 1.25))  # many workers wait for the same server
        raise failure

    def _stranger_error(self, reason: str = "") -> RetrievalError:
        problem = f"what answers at {self.address} is no index server of this typedrag{reason}"
        return RetrievalError(problem, "Name another --retriever")

    def _error(self, problem: str, hint: str = "") -> RetrievalError:
        return RetrievalError(f"the index server at {self.address} {problem}", hint)


class RemoteRetriever(NoDeepcopy):
    """A `Retriever` that searches on an index server, with the passages and scores of the server's retriever.

    Searches that threads make while others are under way are sent together, as one request.
    """

    def __init__(self, server: _IndexServer, part: Part | None = None) -> None:
        self.server, self.served, self.place = server, server.served, server.address
        self._part: Part | None = part

    @property
    def identity(self) -> dict[str, Any]:
        return self.served.identity

    @property
    def bm25(self) -> dict[str, float] | None:
        """The index's settings of BM25; None if it has no BM25 part."""
        manifest = self.served.manifest
        return {"k1": manifest["k1"], "b": manifest["b"]} if "k1" in manifest else None

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        if k < 1 or not queries:
            return [[] for _ in queries]
        if k > MAX_PASSAGES:
            raise InputError(
                f"{k:,} passages are wanted for a query, an index server gives {MAX_PASSAGES:,}", "Want fewer"
            )
        kind, submit = (k, self._part), self.server.batcher.submit
        step = self.server.batcher.most(kind)
        searches = [submit(kind, queries[at : at + step]) for at in range(0, len(queries), step)]
        return [passages for future in searches for passages in future.result()]

    def passages(self) -> Iterator[Passage]:
        """Raise an `InputError`: a server does not hand out its whole index."""
        raise InputError(f"{self.place} does not hand out all passages of its index", "Name the index itself: --index")

    def passage(self, passage_id: str) -> Passage | None:
        return self.server.passage(passage_id)


class RemoteHybrid(HybridRetriever):
    """A hybrid retriever on an index server, searched as a whole or by its parts."""

    def __init__(self, whole: RemoteRetriever) -> None:
        sparse, dense = (RemoteRetriever(whole.server, part) for part in ("sparse", "dense"))
        super().__init__(sparse, dense, weight=whole.served.weight)
        self._whole, self.served, self.bm25 = whole, whole.served, whole.bm25

    @property
    def identity(self) -> dict[str, Any]:
        return self._whole.identity

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return self._whole.search(queries, k)
