"""BM25 and dense retrieval together, and the fusion of several ranked lists into one."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.core.registry import NoDeepcopy
from typedrag.retrieval.protocols import IndexRetriever, Retriever

FUSION_DEPTH = 100
"""Passages of each part that are fused, or as many as are asked for if that is more: a passage in the
middle of both lists can be the best."""


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[Passage]], constant: int = 60, *, weights: Sequence[float] | None = None
) -> list[Passage]:
    """Fuse ranked lists: each passage once, by the sum of `weight / (constant + rank)` over the lists.

    Cormack et al. (2009), https://doi.org/10.1145/1571941.1572114. Ties keep the order in which
    the passages were first seen.

    Args:
        rankings: Lists of passages, best first.
        constant: The larger, the less the first ranks stand out; 60 is the paper's.
        weights: One for each list, by default 1; below 0 for a list whose passages are to come last.

    Example:
        >>> a, b, c = (Passage(id=i, text=i) for i in "abc")
        >>> [p.id for p in reciprocal_rank_fusion([[a, b], [b, c]])]
        ['b', 'a', 'c']
        >>> [p.id for p in reciprocal_rank_fusion([[a, b], [b, c]], weights=[1.0, -1.0])]
        ['a', 'b', 'c']
    """
    scores: dict[str, float] = defaultdict(float)
    first_seen: dict[str, Passage] = {}
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for rank, passage in enumerate(ranking, 1):
            scores[passage.id] += weight / (constant + rank)
            first_seen.setdefault(passage.id, passage)
    return _best_first(first_seen.values(), scores)


def round_robin(rankings: Sequence[Sequence[Passage]]) -> list[Passage]:
    """Fuse ranked lists by turns: the first of each, then the second of each, each passage once.

    However different the lists are, each has its share of the first passages.

    Example:
        >>> a, b, c, d = (Passage(id=i, text=i) for i in "abcd")
        >>> [p.id for p in round_robin([[a, b, c], [b, d]])]
        ['a', 'b', 'd', 'c']
    """
    first_seen: dict[str, Passage] = {}
    for turn in zip_longest(*rankings):
        for passage in filter(None, turn):
            first_seen.setdefault(passage.id, passage)
    return list(first_seen.values())


def weighted_fusion(rankings: Sequence[Sequence[Passage]], weights: Sequence[float]) -> list[Passage]:
    """Fuse ranked lists: each passage once, by the weighted sum of its scores in the lists.

    The scores of each list are first scaled to 0 (its last) to 1 (its first), since scores of different retrievers
    do not compare; a list of equal scores gives 1 to each. A passage that is not in a list has 0 there (Bruch et al.
    2023, https://doi.org/10.1145/3596512: a convex combination of min-max normalised scores). Ties keep the order in
    which the passages were first seen.

    Example:
        >>> sparse = [Passage("a", "", score=12.0), Passage("b", "", score=9.0), Passage("c", "", score=8.0)]
        >>> dense = [Passage("b", "", score=0.8), Passage("d", "", score=0.6)]
        >>> [(p.id, round(p.score, 3)) for p in weighted_fusion([sparse, dense], [0.4, 0.6])]
        [('b', 0.7), ('a', 0.4), ('c', 0.0), ('d', 0.0)]
    """
    scores: dict[str, float] = defaultdict(float)
    first_seen: dict[str, Passage] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        lowest = min((p.score for p in ranking), default=0.0)
        spread = max((p.score for p in ranking), default=0.0) - lowest
        for passage in ranking:
            scores[passage.id] += weight * ((passage.score - lowest) / spread if spread > 0 else 1.0)
            first_seen.setdefault(passage.id, passage)
    return _best_first(first_seen.values(), scores)


def _best_first(passages: Iterable[Passage], scores: Mapping[str, float]) -> list[Passage]:
    return [replace(p, score=scores[p.id]) for p in sorted(passages, key=lambda p: -scores[p.id])]


class HybridRetriever(NoDeepcopy):
    """A `Retriever` that fuses the results of BM25 and of the dense part of the same index.

    Args:
        sparse: BM25 over the index.
        dense: The dense part of the same index.
        weight: The weight of the dense part's scores, 0 to 1; BM25's get the rest. By default ranks are fused
            instead, by reciprocal rank.
    """

    def __init__(self, sparse: IndexRetriever, dense: IndexRetriever, *, weight: float | None = None) -> None:
        if weight is not None:
            check_weight(weight)
        if sparse.identity["index"] != dense.identity["index"]:
            raise RetrievalError(
                f"the dense part of {dense.place} holds other passages than BM25's",
                f"Bring it up to date: typedrag index build --out {sparse.place} --dense MODEL",
            )
        self.sparse, self.dense, self.weight = sparse, dense, weight
        self.place, self.passages, self.passage = sparse.place, sparse.passages, sparse.passage

    @property
    def identity(self) -> dict[str, Any]:
        weight = "" if self.weight is None else f":{self.weight:g}"
        return {**self.dense.identity, **self.sparse.identity, "retriever": f"hybrid{weight}"}

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        if k < 1:
            return [[] for _ in queries]
        depth = max(k, FUSION_DEPTH)
        results = zip(self.sparse.search(queries, depth), self.dense.search(queries, depth), strict=True)
        return [self.fuse(sparse, dense)[:k] for sparse, dense in results]

    def fuse(self, sparse: Sequence[Passage], dense: Sequence[Passage]) -> list[Passage]:
        """The fused list of BM25's and the dense part's results, which may come from different queries."""
        if self.weight is None:
            return reciprocal_rank_fusion([sparse, dense])
        return weighted_fusion([sparse, dense], [1 - self.weight, self.weight])


def check_weight(weight: float) -> None:
    if not 0 <= weight <= 1:
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
