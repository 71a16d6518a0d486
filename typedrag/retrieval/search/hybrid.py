"""BM25 and dense retrieval together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from typedrag.errors import InputError, RetrievalError
from typedrag.records import Passage
from typedrag.retrieval.protocols import IndexRetriever, Retriever
from typedrag.retrieval.search.fusion import reciprocal_rank_fusion, weighted_fusion

FUSION_DEPTH = 100
"""Passages that each part gives to be fused, or as many as are wanted if that is more: a passage that
both have in the middle of their lists can be the best."""


class HybridRetriever:
    """A `Retriever` that fuses what BM25 and the dense part of the same index find.

    Args:
        sparse: BM25 over the index.
        dense: The dense part of the same index.
        weight: Of the dense part's scores in a weighted fusion, 0 to 1, with the rest for BM25's; by
            default ranks are fused by reciprocal rank instead.

    Raises:
        InputError: If the weight is out of its range.
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
        """Where the index is."""
        return self.sparse.place

    @property
    def identity(self) -> dict[str, Any]:
        """What tells its results from those of another retriever."""
        weight = "" if self.weight is None else f":{self.weight:g}"
        return {**self.dense.identity, **self.sparse.identity, "retriever": f"hybrid{weight}"}

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Find the `k` best passages for each query; see `Retriever.search`."""
        if k < 1:
            return [[] for _ in queries]
        depth = max(k, FUSION_DEPTH)
        found = zip(self.sparse.search(queries, depth), self.dense.search(queries, depth), strict=True)
        return [self.fuse(sparse, dense)[:k] for sparse, dense in found]

    def passages(self) -> Iterator[Passage]:
        """All that it holds, in Lucene's order."""
        return self.sparse.passages()

    def fuse(self, sparse: Sequence[Passage], dense: Sequence[Passage]) -> list[Passage]:
        """One list out of BM25's and the dense part's, which may be for queries of their own."""
        if self.weight is None:
            return reciprocal_rank_fusion([sparse, dense])
        return weighted_fusion([sparse, dense], [1 - self.weight, self.weight])

    def __deepcopy__(self, memo: dict[int, Any]) -> HybridRetriever:
        return self  # copies of a program share the open index


def check_weight(weight: float | None) -> None:
    """Refuse what is no share.

    Raises:
        InputError: If it is out of its range.
    """
    if weight is not None and not 0 <= weight <= 1:
        raise InputError(f"the dense part cannot have a weight of {weight}", "Use 0 to 1")


class SparseAndDense(NamedTuple):
    """What a retriever consists of, for programs that ask each part with a query of its own."""

    sparse: Retriever | None
    dense: Retriever | None


def parts_of(retriever: Retriever) -> SparseAndDense:
    """The parts of a hybrid retriever; any other is the one of its kind, BM25 if nothing is known of it."""
    if isinstance(retriever, HybridRetriever):
        return SparseAndDense(retriever.sparse, retriever.dense)
    if getattr(retriever, "identity", {}).get("retriever") == "dense":
        return SparseAndDense(None, retriever)
    return SparseAndDense(retriever, None)
