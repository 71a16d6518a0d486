"""The approximate index of a dense part, for more embeddings than memory holds.

It is a file of FAISS beside the embeddings, which is mapped into memory as it is read. It chooses candidates; their
scores are then computed from the embeddings themselves. So what is found has its exact score, and some may be missed.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from typedrag.core.errors import InputError, first_line
from typedrag.core.extras import require
from typedrag.retrieval.encoder import Embeddings

APPROXIMATE = "approximate.faiss"
AUTO = "auto"
_FEW = 100_000
"""Passages that are searched exactly by `auto`: that takes a few milliseconds."""
_TRAINING_ROWS = 39
"""A list: what FAISS wants at least."""
_ROWS = 50_000
_DEPTH, _LEAST = 10, 200
"""Candidates: so many times the passages that are asked for, and at least so many."""
_FEWEST_LISTS, _MOST_LISTS = 8, 64
"""Of an inverted file that a search reads: a sixteenth of all, within these."""


def faiss_factory(spec: str, rows: int, dimensions: int) -> str:
    """The factory string of FAISS that a spec stands for; empty for an exact search.

    Example:
        >>> faiss_factory("auto", 1_000_000, 384), faiss_factory("auto", 5000, 384), faiss_factory("HNSW32", 5000, 384)
        ('IVF4000,PQ48', '', 'HNSW32')
    """
    if spec != AUTO:
        return spec
    if rows < _FEW:
        return ""
    codes = f"PQ{dimensions // 8}" if dimensions % 8 == 0 else "SQ8"
    return f"IVF{4 * math.isqrt(rows)},{codes}"


def check_factory(spec: str, dimensions: int) -> None:
    """Refuse a spec that FAISS makes no index of."""
    if spec in ("", AUTO):
        return
    try:
        _made(spec, dimensions)
    except RuntimeError as error:
        raise InputError(
            f"FAISS makes no index of '{spec}': {first_line(error)}", "Write auto, or one like IVF4096,PQ48 or HNSW32"
        ) from error


def write_approximate(folder: Path, embeddings: Embeddings, factory: str) -> None:
    """Write the approximate index of embeddings, which are read in parts."""
    require("faiss")
    import faiss

    rows, dimensions = embeddings.shape
    index = _made(factory, dimensions)
    try:
        if not index.is_trained:
            lists = _lists(index)
            step = max(1, rows // (_TRAINING_ROWS * max(lists.nlist if lists else 0, 256)))
            index.train(np.ascontiguousarray(embeddings[::step]))
        for start in range(0, rows, _ROWS):
            index.add(np.ascontiguousarray(embeddings[start : start + _ROWS]))
    except RuntimeError as error:
        raise InputError(
            f"FAISS cannot index {rows:,} embeddings as {factory}: {first_line(error)}", "Write auto, or fewer lists"
        ) from error
    part = folder / f"{APPROXIMATE}.part"
    faiss.write_index(index, str(part))
    part.replace(folder / APPROXIMATE)


class ApproximateSearch:
    """Searches an approximate index and scores what it finds exactly.

    Args:
        folder: The dense part.
        embeddings: Its rows.
    """

    def __init__(self, folder: Path, embeddings: Embeddings) -> None:
        import faiss

        self._embeddings = embeddings
        self._index = faiss.read_index(str(folder / APPROXIMATE), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        if self._index.ntotal != len(embeddings):
            raise ValueError(f"{APPROXIMATE} holds {self._index.ntotal} embeddings")
        if lists := _lists(self._index):
            lists.nprobe = min(max(_FEWEST_LISTS, lists.nlist // 16), _MOST_LISTS)

    def search(self, queries: Embeddings, k: int) -> tuple[list[Embeddings], list[NDArray[np.int64]]]:
        """Scores and rows of each query, best first: at most `k`, fewer where fewer were found."""
        _, candidates = self._index.search(queries, min(max(_DEPTH * k, _LEAST), len(self._embeddings)))
        scores, rows = [], []
        for query, of_query in zip(queries, candidates, strict=True):
            held = np.sort(of_query[of_query >= 0])  # in the order of the file
            exact = self._embeddings[held] @ query
            best = np.argsort(-exact, kind="stable")[:k]
            scores.append(exact[best])
            rows.append(held[best])
        return scores, rows


def _made(factory: str, dimensions: int) -> Any:
    require("faiss")
    import faiss

    return faiss.index_factory(dimensions, factory, faiss.METRIC_INNER_PRODUCT)


def _lists(index: Any) -> Any:
    """The inverted file in an index; None if it has none."""
    import faiss

    return faiss.try_extract_index_ivf(index)
