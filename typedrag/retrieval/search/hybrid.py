"""BM25 and dense retrieval together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.core.registry import NoDeepcopy
from typedrag.retrieval.protocols import IndexRetriever, Retriever
from typedrag.retrieval.search.fusion import reciprocal_rank_fusion, weighted_fusion

FUSION_DEPTH = 100
"""Passages of each part that are fused, or as many as are asked for if that is more: a passage in the
middle of both lists can be the best."""


class HybridRetriever(NoDeepcopy):
    """A `Retriever` that fuses the results of BM25 and of the dense part of the same index.

    Args:
        sparse: BM25 over the index.
        dense: The dense part of the same index.
        weight: The weight of the dense part's scores, 0 to 1; BM25's get the rest. By default ranks are fused
            instead, by reciprocal rank.

    Raises:
        InputError: If the weight is out of range.
        RetrievalError: If the parts do not hold the same passages.
    """

    def __init__(self, sparse: IndexRetriever, dense: IndexRetriever, *, weight: float | None = None) -> None:
        check_weight(weight)
        if sparse.identity["index"] != dense.identity["index"]:
            raise RetrievalError(
                f"the dense part of {dense.place} holds other passages than BM25's",
                f"Bring it up to date: typedrag index build --out {sparse.place} --dense MODEL",
            )
        self.sparse = sparse
        self.dense = dense
        self.weight = weight

    @property
    def place(self) -> str:
        """The place of the index."""
        return self.sparse.place

    @property
    def identity(self) -> dict[str, Any]:
        """Values that tell its results from another retriever's."""
        weight = "" if self.weight is None else f":{self.weight:g}"
        return {**self.dense.identity, **self.sparse.identity, "retriever": f"hybrid{weight}"}

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Find the `k` best passages for each query; see `Retriever.search`."""
        if k < 1:
            return [[] for _ in queries]
        depth = max(k, FUSION_DEPTH)
        results = zip(self.sparse.search(queries, depth), self.dense.search(queries, depth), strict=True)
        return [self.fuse(sparse, dense)[:k] for sparse, dense in results]

    def passages(self) -> Iterator[Passage]:
        """All passages of the index, in Lucene's order."""
        return self.sparse.passages()

    def fuse(self, sparse: Sequence[Passage], dense: Sequence[Passage]) -> list[Passage]:
        """The fused list of BM25's and the dense part's results, which may come from different queries."""
        if self.weight is None:
            return reciprocal_rank_fusion([sparse, dense])
        return weighted_fusion([sparse, dense], [1 - self.weight, self.weight])


def check_weight(weight: float | None) -> None:
    """Refuse a weight that is not from 0 to 1."""
    if weight is not None and not 0 <= weight <= 1:
        raise InputError(f"the dense part cannot have a weight of {weight}", "Use 0 to 1")


class SparseAndDense(NamedTuple):
    """The two retrievers of a hybrid one, for programs that ask each with a query of its own."""

    sparse: Retriever | None
    dense: Retriever | None


def retriever_parts(retriever: Retriever) -> SparseAndDense:
    """The parts of a hybrid retriever; any other retriever is dense if it encodes queries, else sparse."""
    if isinstance(retriever, HybridRetriever):
        return SparseAndDense(retriever.sparse, retriever.dense)
    identity = getattr(retriever, "identity", {})
    if identity.get("retriever") == "dense" or "encoder" in identity:
        return SparseAndDense(None, retriever)
    return SparseAndDense(retriever, None)
