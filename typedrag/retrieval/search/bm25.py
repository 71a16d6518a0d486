"""BM25 over a Lucene index."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from typedrag.core.errors import RetrievalError
from typedrag.core.records import Passage
from typedrag.core.registry import NoDeepcopy
from typedrag.retrieval.index.analyzers import java_analyzer, split_unspaced
from typedrag.retrieval.index.bm25_part import LUCENE, Manifest, check_parameters, read_bm25_manifest
from typedrag.retrieval.index.generations import open_current
from typedrag.retrieval.index.lucene import in_java, java_class, java_path, jvm_lock
from typedrag.text.language import ENGLISH

BM25Setting = Literal["k1", "b"]
MAX_QUERY_TERMS = 65_536
"""The most different terms of a query."""
_MAX_KEPT = 10_000
"""Passages that a retriever keeps of those it has read: reading one from Java takes longer
than anything else done with it."""


class BM25Retriever(NoDeepcopy):
    """A `Retriever` over an index made by `build_index`.

    Queries are bags of words in the index's language: operators and quotes have no meaning.

    Args:
        index: The index folder.
        k1: Term frequency saturation, at least 0; the manifest's by default.
        b: Length normalisation, 0 to 1; the manifest's by default.
        threads: Threads for batches of queries; all processors by default.

    Raises:
        InputError: If k1 or b is out of range.
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
        self.manifest: Manifest
        self.manifest, self._searcher = open_current(self.index, _open)
        self.k1 = self.manifest.k1 if k1 is None else k1
        self.b = self.manifest.b if b is None else b
        check_parameters(self.k1, self.b)
        with jvm_lock:  # this changes a searcher for all its users: one searcher for each k1 and b
            self._searcher.set_bm25(self.k1, self.b)
        self._threads = threads or os.cpu_count() or 1
        self._kept: dict[int, Passage] = {}

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Find the `k` best passages for each query; see `Retriever.search`."""
        if k < 1 or not queries:
            return [[] for _ in queries]
        with in_java(f"index {self.index} cannot be searched"):
            hits_by_query = self._search([split_unspaced(query, self.manifest.language) for query in queries], k)
            return [[self._read(hit) for hit in hits or ()] for hits in hits_by_query]

    @property
    def place(self) -> str:
        """The index folder."""
        return str(self.index)

    @property
    def identity(self) -> dict[str, Any]:
        """Values that tell its results from another retriever's."""
        settings: dict[BM25Setting, float] = {"k1": self.k1, "b": self.b}
        own = {name: value for name, value in settings.items() if value != getattr(self.manifest, name)}
        language = {"language": self.manifest.language} if self.manifest.language != ENGLISH else {}
        return {"index": self.manifest.fingerprint, **({"bm25": own} if own else {}), **language}

    def passages(self) -> Iterator[Passage]:
        """All passages of the index, in Lucene's order."""
        return _passages(self._searcher, self.manifest.passages)

    def passage(self, passage_id: str) -> Passage | None:
        """The passage of this id; None if the index holds none."""
        with in_java(f"index {self.index} cannot be read"):
            document = self._searcher.doc(passage_id)
            return None if document is None else _parse(document.get("raw"))

    def _search(self, queries: Sequence[str], k: int) -> list[Any]:
        if len(queries) == 1:
            return [self._searcher.search(queries[0], k)]
        as_list = java_class("java.util.Arrays").asList
        numbers = [str(number) for number in range(len(queries))]
        hits = self._searcher.batch_search(as_list(*queries), as_list(*numbers), k, self._threads)
        return [hits.get(number) for number in numbers]

    def _read(self, hit: Any) -> Passage:
        number = hit.lucene_docid
        passage = self._kept.get(number)
        if passage is None:
            read = _parse(hit.lucene_document.get("raw"))
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[number] = passage = read
        return Passage(id=passage.id, text=passage.text, title=passage.title, score=hit.score)


def generation_passages(folder: Path) -> Iterator[Passage]:
    """All passages of a generation of an index, in Lucene's order."""
    manifest, searcher = _open(folder)
    return _passages(searcher, manifest.passages)


def _open(folder: Path) -> tuple[Manifest, Any]:
    """The manifest of a generation's BM25 part, and Anserini's searcher of it."""
    manifest, index = read_bm25_manifest(folder), folder.parent
    with in_java(f"index {index} cannot be opened", "Build it again with --force"):
        searcher = java_class("io.anserini.search.SimpleSearcher")(java_path(folder / LUCENE))
        if manifest.language != ENGLISH:
            searcher.set_analyzer(java_analyzer(manifest.language))
        # each term is a clause: Lucene's limit of 1,024 would refuse long questions
        java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MAX_QUERY_TERMS)
        held = int(searcher.get_total_num_docs())
    if held != manifest.passages:
        raise RetrievalError(
            f"index {index} holds {held} passages, its manifest says {manifest.passages}",
            "Build it again with --force",
        )
    return manifest, searcher


def _passages(searcher: Any, count: int) -> Iterator[Passage]:
    for number in range(count):
        with jvm_lock:
            raw = searcher.doc(number).get("raw")
        yield _parse(raw)


def _parse(raw: str) -> Passage:
    row = json.loads(raw)
    title, _, text = row.get("passage", row["contents"]).partition("\n")
    return Passage(id=row["id"], text=text, title=title)
