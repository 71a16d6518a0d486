"""Dense retrieval: the passages whose embeddings are closest to the query's."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from typedrag.core.errors import RetrievalError
from typedrag.core.extras import require
from typedrag.core.records import Passage
from typedrag.core.registry import NoDeepcopy
from typedrag.retrieval.encoder import Embeddings
from typedrag.retrieval.index.approximate import ApproximateSearch
from typedrag.retrieval.index.dense_part import (
    DENSE,
    PASSAGES,
    DenseManifest,
    check_encoder,
    line_ends,
    parse_passage,
    read_embeddings,
    read_generation_dense,
)
from typedrag.retrieval.index.generations import open_current

_DIGITS = 5
"""Digits of a score. Further digits depend on the queries that are embedded together, and would decide ties."""


class DenseRetriever(NoDeepcopy):
    """A `Retriever` over the dense part of an index: inner products, by FAISS, of embeddings that stay in their file.

    All passages are compared, unless the part has an approximate index. Its scores are cosines, unless the model is for
    inner products of unnormalised embeddings.

    Args:
        index: The index folder.
        model: The model, if it is to be fetched or has moved since the part was built; see
            `EncoderSettings.encoder`.

    Raises:
        InputError: If the part was built with another model.
        RetrievalError: If there is no finished dense part that can be read, or the model is missing.
    """

    def __init__(self, index: Path | str, *, model: str | None = None) -> None:
        self.index = Path(index)
        self._model = model
        open_current(self.index, self._open)

    @property
    def place(self) -> str:
        """The index folder."""
        return str(self.index)

    @property
    def identity(self) -> dict[str, Any]:
        """Values that tell its results from another retriever's."""
        return {
            "index": self.manifest.fingerprint,
            "retriever": "dense",
            "encoder": self.manifest.encoder.model_dump(mode="json"),
            **({"approximate": approximate} if (approximate := self.manifest.approximate) else {}),
        }

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Find the `k` best passages for each query; see `Retriever.search`."""
        if k < 1 or not queries:
            return [[] for _ in queries]
        scores, rows = self._search(self.encoder.encode_queries(queries), min(k, self.manifest.passages))
        return [self._best_first(*hits) for hits in zip(scores, rows, strict=True)]

    def passages(self) -> Iterator[Passage]:
        """All passages of the index, in the order of its rows."""
        return (self._read(row) for row in range(self.manifest.passages))

    def _open(self, folder: Path) -> None:
        require("faiss")
        self.manifest: DenseManifest = read_generation_dense(folder)
        self.encoder = self.manifest.encoder.encoder(self._model)
        check_encoder(self.encoder, folder, self.manifest.encoder)
        rows, dimensions = self.manifest.passages, self.manifest.encoder.dimensions
        try:
            self._embeddings = read_embeddings(folder, rows, dimensions)
            self._search = self._exact
            if self.manifest.approximate:
                self._search = ApproximateSearch(folder / DENSE, self._embeddings).search
            with (folder / DENSE / PASSAGES).open("rb") as file:
                self._lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._ends = line_ends(folder / DENSE / PASSAGES)
        except (OSError, ValueError, RuntimeError) as error:  # FAISS raises the last
            raise RetrievalError(
                f"the dense part of {self.index} cannot be opened: {error}", "Build it again with --force"
            ) from error
        if len(self._ends) < rows:
            raise RetrievalError(
                f"the dense part of {self.index} holds {len(self._ends)} passages, its manifest says {rows}",
                "Build it again with --force",
            )

    def _exact(self, queries: Embeddings, k: int) -> Any:
        import faiss

        # read from the file as they are searched: an index of FAISS's own would hold them all a second time
        return faiss.knn(queries, self._embeddings, k, metric=faiss.METRIC_INNER_PRODUCT)

    def _best_first(self, scores: Embeddings, rows: Any) -> list[Passage]:
        scored = (replace(self._read(row), score=round(float(s), _DIGITS)) for s, row in zip(scores, rows, strict=True))
        return sorted(scored, key=lambda p: -p.score)

    def _read(self, row: int) -> Passage:
        return parse_passage(self._lines[self._ends[row - 1] if row else 0 : self._ends[row]])
