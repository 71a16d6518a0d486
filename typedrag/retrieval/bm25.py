"""BM25 over a Lucene index."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typedrag.errors import InputError, RetrievalError
from typedrag.records import Passage
from typedrag.retrieval.index import Manifest, read_manifest
from typedrag.retrieval.lucene import java_class, java_reason

_MAX_QUERY_TERMS = 65_536


class BM25Retriever:
    """A `Retriever` over an index that `build_index` made.

    Queries are bags of words: operators and quotes have no meaning.

    Args:
        index: The index folder.
        k1: Term frequency saturation, at least 0; the manifest's by default.
        b: Length normalisation, 0 to 1; the manifest's by default.
        threads: For batches of queries; all processors by default.

    Raises:
        InputError: If k1 or b is out of its range.
        RetrievalError: If there is no finished index that can be read.
    """

    def __init__(
        self,
        index: Path | str,
        *,
        k1: float | None = None,
        b: float | None = None,
        threads: int | None = None,
    ) -> None:
        self.index = Path(index)
        self.manifest: Manifest = read_manifest(self.index)
        self.k1 = self.manifest.k1 if k1 is None else k1
        self.b = self.manifest.b if b is None else b
        if self.k1 < 0 or not 0 <= self.b <= 1:
            raise InputError(f"BM25 has no k1 = {self.k1}, b = {self.b}", "Use k1 of 0 or more, b from 0 to 1")
        self._threads = threads or os.cpu_count() or 1
        # Setters change a searcher for all its users: one searcher for each k1 and b.
        self._searcher = self._open()

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Find the `k` best passages for each query; see `Retriever.search`."""
        if k < 1 or not queries:
            return [[] for _ in queries]
        try:
            if len(queries) == 1:
                return [_passages(self._searcher.search(queries[0], k))]
            return self._search_batch(queries, k)
        except Exception as error:  # pyjnius raises Java's exceptions of any kind
            raise RetrievalError(f"index {self.index} cannot be searched: {java_reason(error)}") from error

    def __deepcopy__(self, memo: dict[int, Any]) -> BM25Retriever:
        return self  # copies of a program share the open index

    def _search_batch(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        array_list = java_class("java.util.ArrayList")
        texts, numbers = array_list(), array_list()
        for number, query in enumerate(queries):
            texts.add(query)
            numbers.add(str(number))
        found = self._searcher.batch_search(texts, numbers, k, self._threads)
        return [_passages(found.get(str(number))) for number in range(len(queries))]

    def _open(self) -> Any:
        try:
            searcher = java_class("io.anserini.search.SimpleSearcher")(str(self.index / "lucene"))
            searcher.set_bm25(self.k1, self.b)
            # a clause a term: Lucene's limit of 1,024 would refuse long questions
            java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(_MAX_QUERY_TERMS)
        except RetrievalError:
            raise
        except Exception as error:  # pyjnius raises Java's exceptions of any kind
            reason = java_reason(error)
            raise RetrievalError(
                f"index {self.index} cannot be opened: {reason}", "Build it again with --force"
            ) from error
        held = int(searcher.get_total_num_docs())
        if held != self.manifest.passages:
            raise RetrievalError(
                f"index {self.index} holds {held} passages, its manifest says {self.manifest.passages}",
                "Build it again with --force",
            )
        return searcher


def _passages(hits: Any) -> list[Passage]:
    passages = []
    for hit in hits or ():
        title, _, text = json.loads(hit.lucene_document.get("raw"))["contents"].partition("\n")
        passages.append(Passage(id=hit.docid, text=text, title=title, score=hit.score))
    return passages
