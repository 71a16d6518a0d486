"""The passages that a dataset labels as those its question needs, in the place of what is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from typedrag.core.call_context import call_context
from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.core.registry import NoDeepcopy
from typedrag.retrieval.search.bm25 import BM25Retriever


class GoldRetriever(NoDeepcopy):
    """A `Retriever` of the ideal context: whatever the query, the labelled passages of the question that is answered.

    So any program is measured as if retrieval made no mistake (PreQRAG, appendix B.2). The labels are the field
    `passage_ids` of a dataset's questions; see `CallContext`.

    Args:
        index: BM25 over the index that holds the passages.
    """

    def __init__(self, index: BM25Retriever) -> None:
        self._index = index

    @property
    def place(self) -> str:
        """The index folder."""
        return self._index.place

    @property
    def identity(self) -> dict[str, Any]:
        """Values that tell its results from another retriever's."""
        return {**self._index.identity, "retriever": "gold"}

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The first `k` labelled passages, for each query the same; see `Retriever.search`."""
        ids = call_context().labels.get("passage_ids")
        if not ids:
            raise InputError(
                "the retriever is gold, but the question has no labelled passages",
                "Evaluate it on a dataset whose questions have passage_ids",
            )
        gold = [self._passage(i) for i in ids[: max(k, 0)]]
        return [gold for _ in queries]

    def passages(self) -> Iterator[Passage]:
        """All passages of the index, in Lucene's order."""
        return self._index.passages()

    def _passage(self, passage_id: str) -> Passage:
        passage = self._index.passage(passage_id)
        if passage is None:
            raise RetrievalError(
                f"the dataset labels passage '{passage_id}', which index {self.place} does not hold",
                "Name the index whose passages it labels",
            )
        return replace(passage, score=1.0)
