"""Retrievers over an index, by spec: `bm25`, `dense`, `hybrid[:WEIGHT]` or `auto`.

`hybrid` fuses the ranks of BM25 and the dense part; with a WEIGHT of the dense part, 0 to 1, it fuses
their scores. `auto` is `hybrid` if the index has both parts, else the part that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from typedrag.errors import InputError
from typedrag.retrieval.index.dense_manifest import has_dense, read_dense_manifest
from typedrag.retrieval.index.index import read_manifest
from typedrag.retrieval.index.workshop import opened
from typedrag.retrieval.protocols import IndexRetriever
from typedrag.retrieval.search.bm25 import BM25Retriever, BM25Setting
from typedrag.retrieval.search.dense import DenseRetriever
from typedrag.retrieval.search.hybrid import HybridRetriever, check_weight

FORMS = "bm25, dense, hybrid, hybrid:WEIGHT, auto"


def check_retriever(spec: str) -> float | None:
    """The weight that a spec gives the dense part; None if ranks are fused.

    Raises:
        InputError: If the spec has none of the forms, or the weight is out of range.

    Example:
        >>> check_retriever("hybrid:0.7"), check_retriever("bm25")
        (0.7, None)
    """
    kind, colon, weight = spec.partition(":")
    if kind not in ("bm25", "dense", "hybrid", "auto") or (colon and kind != "hybrid"):
        raise InputError(f"'{spec}' is no retriever", f"Write one of: {FORMS}")
    if not colon:
        return None
    try:
        value = float(weight)
    except ValueError:
        raise InputError(f"'{spec}' is no retriever: '{weight}' is no number", "Write it like hybrid:0.5") from None
    check_weight(value)
    return value


def check_index(spec: str, index: Path) -> None:
    """Refuse an index that lacks a part which the spec's retriever searches, without opening the index.

    Raises:
        InputError: If the spec has none of the forms.
        RetrievalError: If there is no such index, or a part of it is missing or unfinished.
    """
    check_retriever(spec)
    kind = spec.partition(":")[0]
    if kind in ("bm25", "hybrid"):
        read_manifest(index)
    if kind in ("dense", "hybrid"):
        read_dense_manifest(index)


def open_retriever(spec: str, index: Path | str, bm25: Mapping[BM25Setting, float] | None = None) -> IndexRetriever:
    """The retriever that a spec names, ready to search.

    Args:
        spec: The retriever's spec.
        index: The index folder.
        bm25: Settings that replace the index's own for BM25.

    Raises:
        InputError: If the spec has none of the forms, or a setting is out of range.
        RetrievalError: If the index or its dense part is missing or cannot be used.
    """
    weight = check_retriever(spec)
    folder = Path(index)
    return opened(folder, lambda: _open(spec.partition(":")[0], folder, weight, bm25 or {}))


def _open(kind: str, index: Path, weight: float | None, settings: Mapping[BM25Setting, float]) -> IndexRetriever:
    if kind == "auto":
        kind = "bm25" if not has_dense(index) else "hybrid" if has_bm25(index) else "dense"
    if kind == "dense":
        return DenseRetriever(index)
    sparse = BM25Retriever(index, k1=settings.get("k1"), b=settings.get("b"))
    return sparse if kind == "bm25" else HybridRetriever(sparse, DenseRetriever(index), weight=weight)


def has_bm25(index: Path) -> bool:
    """True if an index has a Lucene part, finished or not."""
    return (index / "lucene").is_dir()
