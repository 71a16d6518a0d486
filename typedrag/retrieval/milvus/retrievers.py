"""Retrievers over a collection of Milvus: BM25 by its own full-text search, dense, and both fused as ours are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typedrag.errors import InputError, RetrievalError
from typedrag.files.text_files import without_half_characters
from typedrag.records import Passage
from typedrag.retrieval.encoder import Encoder
from typedrag.retrieval.index.analyzers import in_pairs
from typedrag.retrieval.index.bm25_part import K1, B
from typedrag.retrieval.milvus.address import MilvusAddress
from typedrag.retrieval.milvus.collection import (
    DENSE,
    SPARSE,
    TEXTS,
    Collection,
    CollectionManifest,
    check_embeddings,
    passage_of,
)
from typedrag.retrieval.protocols import IndexRetriever
from typedrag.retrieval.search.bm25 import BM25Setting
from typedrag.retrieval.search.gathering import Gatherer, Rankings
from typedrag.retrieval.search.hybrid import HybridRetriever
from typedrag.sharing import Shared
from typedrag.texts.language import ENGLISH

MOST_PASSAGES = 16_384
"""That Milvus gives for a query."""
_TEXTS_A_CALL = 16_384
"""Passages of a reply, which are about 16 MiB."""
_QUERIES_A_CALL = 64
_IN_FLIGHT = 4
_SECONDS = 60.0
"""For a search."""
_DIGITS = 5
"""Digits of a score: further ones vary with the rows that are searched together, and would decide ties."""


class _MilvusRetriever(Shared):
    """A `Retriever` over one part of a collection.

    Searches of many threads go together: those that wait while others are under way are one call.

    Args:
        collection: An index that is finished.
        manifest: Its manifest.
    """

    part: str
    metric: str

    def __init__(self, collection: Collection, manifest: CollectionManifest) -> None:
        self.collection = collection
        self.manifest = manifest
        self._gatherer = Gatherer(self._search, threads=_IN_FLIGHT, most=_QUERIES_A_CALL)

    @property
    def place(self) -> str:
        """The server and the collection."""
        return self.collection.address.place

    @property
    def identity(self) -> dict[str, Any]:
        """Values that tell its results from another retriever's."""
        where = self.collection.address.filter
        return {"index": self.manifest.fingerprint, "engine": "milvus", **({"filter": where} if where else {})}

    def search(self, queries: Sequence[str], k: int) -> Rankings:
        """Find the `k` best passages for each query; see `Retriever.search`.

        Raises:
            InputError: If more passages are wanted for a query than Milvus gives.
            RetrievalError: If Milvus fails.
        """
        if k < 1 or not queries:
            return [[] for _ in queries]
        if k > MOST_PASSAGES:
            raise InputError(f"{k:,} passages are wanted for a query, Milvus gives {MOST_PASSAGES:,}", "Want fewer")
        step = max(1, min(_QUERIES_A_CALL, _TEXTS_A_CALL // k))
        searches = [self._gatherer.submit(k, queries[at : at + step]) for at in range(0, len(queries), step)]
        return [passages for future in searches for passages in future.result()]

    def passages(self) -> Iterator[Passage]:
        """All passages that pass the filter, in the order of their ids."""
        name, where = self.collection.name, self.collection.address.filter
        rows = self.collection.ask(
            lambda client: client.query_iterator(name, filter=where, output_fields=list(TEXTS), batch_size=1000)
        )
        while batch := self.collection.ask(lambda client: rows.next()):
            yield from map(passage_of, batch)
        rows.close()

    def _search(self, k: int, queries: list[str]) -> Rankings:
        vectors = self._vectors([without_half_characters(query) for query in queries])
        results = self.collection.ask(
            lambda client: client.search(
                self.collection.name,
                vectors,
                anns_field=self.part,
                limit=k,
                filter=self.collection.address.filter,
                output_fields=list(TEXTS),
                search_params={"metric_type": self.metric},
                timeout=_SECONDS,
            )
        )
        return [self._best_first(hits) for hits in results]

    def _best_first(self, hits: Any) -> list[Passage]:
        passages = [passage_of({**hit["entity"], "id": hit["id"]}, round(hit["distance"], _DIGITS)) for hit in hits]
        return sorted(passages, key=lambda p: (-p.score, p.id))  # Milvus orders equals as it likes

    def _vectors(self, queries: list[str]) -> list[Any]:
        raise NotImplementedError


class MilvusBM25(_MilvusRetriever):
    """A `Retriever` by BM25, which Milvus computes from the terms of its own analyzer.

    Its scores and those of Lucene do not compare: stems, stop words and the lengths of passages differ.
    """

    part, metric = SPARSE, "BM25"

    @property
    def identity(self) -> dict[str, Any]:
        """Values that tell its results from another retriever's."""
        settings = {"k1": self.manifest.k1, "b": self.manifest.b}
        own = {} if settings == {"k1": K1, "b": B} else {"bm25": settings}
        language = {} if self.manifest.language == ENGLISH else {"language": self.manifest.language}
        return {**super().identity, **own, **language}

    def _vectors(self, queries: list[str]) -> list[Any]:
        return [in_pairs(query, self.manifest.language) for query in queries]


class MilvusDense(_MilvusRetriever):
    """A `Retriever` by inner products of embeddings, as close to exact as the server's index is.

    Raises:
        InputError: If the collection was built with another model.
        RetrievalError: If it has no dense part, or the model is missing.
    """

    part, metric = DENSE, "IP"

    def __init__(self, collection: Collection, manifest: CollectionManifest) -> None:
        if manifest.encoder is None:
            raise _without("dense", collection)
        self.settings = manifest.encoder
        self.encoder: Encoder = manifest.encoder.encoder()
        check_embeddings(collection, self.encoder)
        super().__init__(collection, manifest)

    @property
    def identity(self) -> dict[str, Any]:
        """Values that tell its results from another retriever's."""
        return {**super().identity, "retriever": "dense", "encoder": self.settings.model_dump(mode="json")}

    def _vectors(self, queries: list[str]) -> list[Any]:
        return list(self.encoder.encode_queries(queries))


def open_milvus(address: MilvusAddress, bm25: Mapping[BM25Setting, float] | None = None) -> IndexRetriever:
    """The retriever that an address names.

    Args:
        address: Of the collection, with how it is searched.
        bm25: Settings of BM25, which have to be those that the index was built with.

    Raises:
        InputError: If a setting is another, the model is another, or no passage passes the filter.
        RetrievalError: If there is no finished index, it lacks a part, or the server cannot be asked.
    """
    collection = Collection(address)
    manifest = collection.finished()
    kind, _, weight = address.search.partition(":")
    if kind == "auto":
        kind = "bm25" if manifest.encoder is None else "hybrid" if manifest.bm25 else "dense"
    if kind != "dense":
        _check_bm25(collection, manifest, bm25 or {})
    if address.filter:
        _check_filter(collection, manifest)
    if kind == "bm25":
        return MilvusBM25(collection, manifest)
    dense = MilvusDense(collection, manifest)
    if kind == "dense":
        return dense
    return HybridRetriever(MilvusBM25(collection, manifest), dense, weight=float(weight) if weight else None)


def _check_bm25(collection: Collection, manifest: CollectionManifest, settings: Mapping[BM25Setting, float]) -> None:
    if not manifest.bm25:
        raise _without("BM25", collection)
    k1, b = manifest.k1, manifest.b
    if settings.get("k1", k1) != k1 or settings.get("b", b) != b:
        raise InputError(
            f"{collection.address.place} was built with k1 = {k1}, b = {b}, and no search sets others",
            "Leave them out, or build the index anew with others",
        )


def _check_filter(collection: Collection, manifest: CollectionManifest) -> None:
    where = collection.address.filter
    fields = f"Filter by {', '.join(manifest.metadata) or 'id'}, as Milvus writes it: year >= 2020 and lang == 'en'"
    try:
        rows = collection.ask(
            lambda client: client.query(collection.name, filter=where, output_fields=["id"], limit=1, timeout=_SECONDS)
        )
    except RetrievalError as error:
        raise InputError(f"Milvus cannot filter by '{where}': {error.problem}", fields) from error
    if not rows:
        raise InputError(f"no passage of {collection.address.place} passes the filter '{where}'", fields)


def _without(part: str, collection: Collection) -> RetrievalError:
    place = collection.address.place
    return RetrievalError(f"{place} has no {part} part", "Search the other, or build it anew with both")
