"""Retrievers that search an index through `typedrag index serve`, on this machine or another."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from typedrag.errors import InputError, RetrievalError
from typedrag.files.text_files import WholeText, without_half_characters
from typedrag.records import Passage
from typedrag.retrieval.index.bm25_part import check_parameters
from typedrag.retrieval.search.bm25 import BM25Setting
from typedrag.retrieval.search.gathering import Gatherer, Rankings
from typedrag.retrieval.search.hybrid import HybridRetriever
from typedrag.sharing import Shared

KEY = "TYPEDRAG_RETRIEVER_KEY"
"""The environment variable of the key to an index server."""
MOST_PASSAGES = 1000
"""The most passages that a search may ask for, for each query."""
_IN_FLIGHT = 2
"""Requests at once. While one is under way, other searches gather; more requests would each be smaller."""
_TRIES = 6
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 30.0
_TIMES = httpx.Timeout(60.0, connect=5.0)
_REFUSALS, _LATER = (401, 403), (429, 503)
_JSON = {"Content-Type": "application/json"}

Part = Literal["sparse", "dense"]


class BM25Settings(BaseModel):
    """Settings of BM25 that are not the index's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    k1: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    b: float | None = Field(default=None, ge=0, le=1)

    @property
    def given(self) -> dict[BM25Setting, float]:
        """The settings that differ from the index's."""
        values: dict[BM25Setting, float | None] = {"k1": self.k1, "b": self.b}
        return {name: value for name, value in values.items() if value is not None}


class SearchRequest(BaseModel):
    """Queries, and how they are searched."""

    model_config = ConfigDict(extra="forbid")

    queries: list[WholeText] = Field(min_length=1)
    k: int = Field(ge=1, le=MOST_PASSAGES, description="Number of passages for each query.")
    bm25: BM25Settings = BM25Settings()
    part: Part | None = Field(default=None, description="The part of a hybrid retriever to search; by default both.")


class SearchReply(BaseModel):
    """The passages of each query, best first, and the fingerprint of their index."""

    index: str
    passages: list[list[Passage]]


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


class _Kind(NamedTuple):
    k: int
    part: Part | None


def is_remote(spec: str) -> bool:
    """True if a retriever's spec is the address of a server."""
    return spec.lower().startswith(("http://", "https://"))


def check_address(address: str) -> None:
    """Check that an address has a host and at most a port and a path.

    Raises:
        InputError: If it has no host, or holds a user, a query or a fragment.
    """
    mend = "Write it like http://HOST:PORT"
    try:
        url = urlsplit(address)
        port = url.port
    except ValueError:
        raise InputError(f"'{address}' is no address of an index server", mend) from None
    if url.username is not None or url.query or url.fragment:
        raise InputError(f"'{address}' says more than an address", f"{mend}; a key belongs into {KEY}")
    if not url.hostname or port == 0:
        raise InputError(f"'{address}' is no address of an index server", mend)


def open_remote(address: str, bm25: Mapping[BM25Setting, float] | None = None) -> RemoteRetriever | RemoteHybrid:
    """Connect to an index server; returns a retriever that searches there.

    Args:
        address: The server's address, such as `http://localhost:8010`.
        bm25: The settings of BM25 that differ from the index's.

    Raises:
        InputError: If the address is none, or a setting is out of its range.
        RetrievalError: If no index server answers there, or it refuses the key.
    """
    settings = bm25 or {}
    check_parameters(settings.get("k1", 0), settings.get("b", 0))
    server = IndexServer(address, BM25Settings(k1=settings.get("k1"), b=settings.get("b")))
    whole = RemoteRetriever(server)
    return RemoteHybrid(whole) if server.served.retriever.startswith("hybrid") else whole


class IndexServer:
    """A connection to an index server, which retries if the server is busy or out of reach for a moment.

    Searches that threads make while others are under way are sent together, as one request.

    Args:
        address: The server's address.
        bm25: The settings of BM25 for all searches.

    Raises:
        InputError: See `open_remote`.
        RetrievalError: See `open_remote`.
    """

    def __init__(self, address: str, bm25: BM25Settings) -> None:
        check_address(address)
        self.address = address.rstrip("/")
        self._bm25 = bm25
        key = os.environ.get(KEY)
        self._client = httpx.Client(
            base_url=self.address, headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=_TIMES
        )
        try:
            self.served = ServedIndex.model_validate_json(self._ask("GET", "/v1/index", tries=1, params=bm25.given))
        except ValidationError as error:
            raise self._no_index_server() from error
        self._gatherer = Gatherer(self._search, threads=_IN_FLIGHT, most=self.served.batch)

    def search(self, queries: Sequence[str], kind: _Kind) -> Rankings:
        """The passages for each query, of which there may be any number.

        Raises:
            InputError: If `kind` asks for more passages than a server gives.
            RetrievalError: If the server cannot be reached, refuses, or serves another index than before.
        """
        if kind.k < 1 or not queries:
            return [[] for _ in queries]
        if kind.k > MOST_PASSAGES:
            raise InputError(
                f"{kind.k:,} passages are wanted for a query, an index server gives {MOST_PASSAGES:,}", "Want fewer"
            )
        step = self.served.batch
        searches = [self._gatherer.submit(kind, queries[at : at + step]) for at in range(0, len(queries), step)]
        return [passages for future in searches for passages in future.result()]

    def _search(self, kind: _Kind, queries: list[str]) -> Rankings:
        request = SearchRequest(queries=list(map(without_half_characters, queries)), bm25=self._bm25, **kind._asdict())
        reply = self._ask("POST", "/v1/search", content=request.model_dump_json(), headers=_JSON)
        try:
            read = SearchReply.model_validate_json(reply)
        except ValidationError as error:
            raise self._no_index_server() from error
        if read.index != self.served.identity["index"]:
            raise RetrievalError(f"{self.address} serves another index than before", "Begin the run anew")
        return read.passages

    def _ask(self, method: str, path: str, *, tries: int = _TRIES, **request: Any) -> bytes:
        for attempt in range(tries):
            wait = _FIRST_WAIT * 2**attempt
            try:
                reply = self._client.request(method, path, **request)
            except httpx.ReadTimeout as error:
                raise self._fault(f"has not answered in {_TIMES.read:g} seconds", "Ask it by fewer workers") from error
            except httpx.TransportError as error:
                fault = self._fault(f"cannot be reached: {error}", "Start it: typedrag index serve --index FOLDER")
            else:
                if reply.is_success:
                    return reply.content
                fault = self._refusal(reply)
                if reply.status_code not in _LATER:
                    raise fault
                wait = max(wait, _seconds(reply.headers.get("Retry-After", "")))
            if attempt + 1 < tries:
                time.sleep(wait)
        raise fault

    def _refusal(self, reply: httpx.Response) -> RetrievalError:
        if reply.status_code in _REFUSALS:
            return self._fault("lets in nobody without a key", f"Set {KEY} to one that typedrag keys has made")
        try:
            return self._fault(f"refuses: {reply.json()['error']['message']}")
        except (ValueError, KeyError, TypeError):
            return self._no_index_server(f" (status {reply.status_code})")

    def _no_index_server(self, reason: str = "") -> RetrievalError:
        return RetrievalError(
            f"what answers at {self.address} is no index server of this typedrag{reason}", "Name another --retriever"
        )

    def _fault(self, problem: str, mend: str = "") -> RetrievalError:
        return RetrievalError(f"the index server at {self.address} {problem}", mend)


class RemoteRetriever(Shared):
    """A `Retriever` that searches on an index server, with the passages and scores of the server's retriever.

    Args:
        server: The connection.
        part: The part of a hybrid retriever to search; by default both.
    """

    def __init__(self, server: IndexServer, part: Part | None = None) -> None:
        self.server = server
        self._part: Part | None = part

    @property
    def served(self) -> ServedIndex:
        """The index and retriever that the server has open."""
        return self.server.served

    @property
    def place(self) -> str:
        """The address of the server."""
        return self.server.address

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of the server's retriever: the same index gives the same results wherever it is searched."""
        return self.served.identity

    def search(self, queries: Sequence[str], k: int) -> Rankings:
        """Find the `k` best passages for each query; see `Retriever.search`."""
        return self.server.search(queries, _Kind(k, self._part))

    def passages(self) -> Iterator[Passage]:
        """Raise an `InputError`: a server does not hand out its whole index."""
        raise InputError(f"{self.place} does not hand out all passages of its index", "Name the index itself: --index")


class RemoteHybrid(HybridRetriever):
    """A hybrid retriever on an index server, searched as a whole or by its parts.

    Args:
        whole: The remote retriever that searches both parts.
    """

    def __init__(self, whole: RemoteRetriever) -> None:
        server = whole.server
        super().__init__(
            RemoteRetriever(server, "sparse"), RemoteRetriever(server, "dense"), weight=server.served.weight
        )
        self._whole = whole
        self.served = server.served

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of the server's retriever."""
        return self._whole.identity

    def search(self, queries: Sequence[str], k: int) -> Rankings:
        """Find the `k` best passages for each query, which the server fuses."""
        return self._whole.search(queries, k)


def _seconds(retry_after: str) -> float:
    return min(float(retry_after), _LONGEST_WAIT) if retry_after.isdecimal() else 0.0
