"""Dense retrieval: the passages whose embeddings are closest to the query's."""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from typedrag.core.errors import RetrievalError
from typedrag.core.extras import require
from typedrag.core.records import Passage
from typedrag.core.registry import NoDeepcopy
from typedrag.retrieval.encoder import Embeddings
from typedrag.retrieval.index import dense_part
from typedrag.retrieval.index.dense_part import DenseManifest
from typedrag.retrieval.index.generations import open_current

_DEPTH, _LEAST = 10, 200
"""Candidates of an approximate search: so many times the passages that are asked for, and at least so many."""
_FEWEST_LISTS, _MOST_LISTS = 8, 64  # of an inverted file that a search reads: a sixteenth of all, within these
_DIGITS = 5  # digits of a score. Further digits depend on the queries that are embedded together, and would decide ties


class ApproximateSearch:
    """Searches the approximate index of a dense part, in the folder `folder`.

    The file is mapped into memory as it is read. It chooses candidates; their scores are then computed from the
    embeddings themselves. So what is found has its exact score, and some may be missed.
    """

    def __init__(self, folder: Path, embeddings: Embeddings) -> None:
        import faiss

        self._embeddings, file = embeddings, str(folder / dense_part.APPROXIMATE)
        self._index = faiss.read_index(file, faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        if self._index.ntotal != len(embeddings):
            raise ValueError(f"{dense_part.APPROXIMATE} holds {self._index.ntotal} embeddings")
        if lists := faiss.try_extract_index_ivf(self._index):
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


class DenseRetriever(NoDeepcopy):
    """A `Retriever` over the dense part of an index: inner products, by FAISS, of embeddings that stay in their file.

    All passages are compared, unless the part has an approximate index. Its scores are cosines, unless the model is for
    inner products of unnormalised embeddings.

    Args:
        index: The index folder.
        model: The model, if it is to be fetched or has moved since the part was built.
    """

    def __init__(self, index: Path | str, *, model: str | None = None) -> None:
        self.index, self.place, self._model = Path(index), str(index), model
        open_current(self.index, self._open)

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "index": self.manifest.fingerprint,
            "retriever": "dense",
            "encoder": self.manifest.encoder.model_dump(mode="json"),
            **({"approximate": approximate} if (approximate := self.manifest.approximate) else {}),
        }

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        if k < 1 or not queries:
            return [[] for _ in queries]
        scores, rows = self._search(self.encoder.encode_queries(queries), k=min(k, self.manifest.passages))
        rankings = []
        for query_scores, query_rows in zip(scores, rows, strict=True):
            hits = zip(query_scores, query_rows, strict=True)
            passages = (replace(self._read(row), score=round(float(score), _DIGITS)) for score, row in hits)
            rankings.append(sorted(passages, key=lambda p: -p.score))
        return rankings

    def passages(self) -> Iterator[Passage]:
        return (self._read(row) for row in range(self.manifest.passages))

    def passage(self, passage_id: str) -> Passage | None:
        """The passage of this id, looked for among all; None if the index holds none."""
        return next((passage for passage in self.passages() if passage.id == passage_id), None)

    def _open(self, folder: Path) -> None:
        require("faiss")
        import faiss

        self.manifest: DenseManifest = dense_part.read_generation_dense(folder)
        self.encoder = self.manifest.encoder.encoder(self._model)
        dense_part.check_encoder(self.encoder, folder, self.manifest.encoder)
        rows, dimensions = self.manifest.passages, self.manifest.encoder.dimensions
        try:
            self._embeddings = dense_part.read_embeddings(folder, rows, dimensions)
            if self.manifest.approximate:
                self._search: Any = ApproximateSearch(folder / dense_part.DENSE, self._embeddings).search
            else:  # read from the file as they are searched: an index of FAISS's own would hold them all a second time
                self._search = partial(faiss.knn, xb=self._embeddings, metric=faiss.METRIC_INNER_PRODUCT)
            with (folder / dense_part.DENSE / dense_part.PASSAGES).open("rb") as file:
                self._lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._ends = dense_part.line_ends(folder / dense_part.DENSE / dense_part.PASSAGES)
        except (OSError, ValueError, RuntimeError) as error:  # FAISS raises the last
            raise RetrievalError(
                f"the dense part of {self.index} cannot be opened: {error}", "Build it again with --force"
            ) from error
        if len(self._ends) < rows:
            raise RetrievalError(
                f"the dense part of {self.index} holds {len(self._ends)} passages, its manifest says {rows}",
                "Build it again with --force",
            )

    def _read(self, row: int) -> Passage:
        return dense_part.parse_passage(self._lines[self._ends[row - 1] if row else 0 : self._ends[row]])
