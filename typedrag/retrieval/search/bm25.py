"""BM25 over a Lucene index, and the passages that a dataset labels in the place of what is found."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from typedrag.core.call_context import call_context
from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.core.registry import NoDeepcopy
from typedrag.retrieval.index.bm25_part import LUCENE, Manifest, check_parameters, indexed_text, read_bm25_manifest
from typedrag.retrieval.index.generations import open_current
from typedrag.retrieval.index.lucene import analyzer_class, in_java, java_class, java_path, jvm_lock
from typedrag.text.language import ENGLISH

BM25Setting = Literal["k1", "b"]
MAX_QUERY_TERMS = 65_536  # the most different terms of a query
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
    """

    def __init__(
        self, index: Path | str, *, k1: float | None = None, b: float | None = None, threads: int | None = None
    ) -> None:
        self.index, self.place = Path(index), str(index)
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
        """Find passages for each of a batch of queries; see `Retriever`."""
        if k < 1 or not queries:
            return [[] for _ in queries]
        with in_java(f"index {self.index} cannot be searched"):
            form = self.manifest.normal_form
            texts = [indexed_text(query, self.manifest.language, form) for query in queries]
            if len(texts) == 1:
                return [[self._read(hit) for hit in self._searcher.search(texts[0], k)]]
            as_list = java_class("java.util.Arrays").asList
            numbers = [str(number) for number in range(len(texts))]
            hits = self._searcher.batch_search(as_list(*texts), as_list(*numbers), k, self._threads)
            return [[self._read(hit) for hit in hits.get(number) or ()] for number in numbers]

    @property
    def identity(self) -> dict[str, Any]:
        settings: dict[BM25Setting, float] = {"k1": self.k1, "b": self.b}
        own = {name: value for name, value in settings.items() if value != getattr(self.manifest, name)}
        language = {"language": self.manifest.language} if self.manifest.language != ENGLISH else {}
        form = {"normal_form": self.manifest.normal_form} if self.manifest.normal_form else {}
        return {"index": self.manifest.fingerprint, **({"bm25": own} if own else {}), **language, **form}

    def passages(self) -> Iterator[Passage]:
        """All passages of the index, in Lucene's order."""
        return _passages(self._searcher, self.manifest.passages)

    def passage(self, passage_id: str) -> Passage | None:
        """The passage of this id; None if the index holds none."""
        with in_java(f"index {self.index} cannot be read"):
            document = self._searcher.doc(passage_id)
            return None if document is None else _parse(document.get("raw"))

    def _read(self, hit: Any) -> Passage:
        number = hit.lucene_docid
        if (passage := self._kept.get(number)) is None:
            passage = _parse(hit.lucene_document.get("raw"))
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            self._kept[number] = passage
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
            searcher.set_analyzer(java_class(analyzer_class(manifest.language))())
        # each term is a clause: Lucene's limit of 1,024 would refuse long questions
        java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MAX_QUERY_TERMS)
        held = int(searcher.get_total_num_docs())
    if held != manifest.passages:
        raise RetrievalError(
            f"index {index} holds {held} passages, its manifest says {manifest.passages}", "Build it again with --force"
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


class GoldRetriever(NoDeepcopy):
    """A `Retriever` of the ideal context: whatever the query, the labelled passages of the question that is answered.

    So any program is measured as if retrieval made no mistake (PreQRAG, appendix B.2). The labels are the field
    `passage_ids` of a dataset's questions; see `CallContext`.

    Args:
        index: BM25 over the index that holds the passages.
    """

    def __init__(self, index: BM25Retriever) -> None:
        self._index, self.place = index, index.place
        self.passages, self.passage = index.passages, index.passage

    @property
    def identity(self) -> dict[str, Any]:
        return {**self._index.identity, "retriever": "gold"}

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        ids, gold = call_context().labels.get("passage_ids"), list[Passage]()
        if not ids:
            raise InputError(
                "the retriever is gold, but the question has no labelled passages",
                "Evaluate it on a dataset whose questions have passage_ids",
            )
        for passage_id in ids[: max(k, 0)]:
            passage = self._index.passage(passage_id)
            if passage is None:
                raise RetrievalError(
                    f"the dataset labels passage '{passage_id}', which index {self.place} does not hold",
                    "Name the index whose passages it labels",
                )
            gold.append(replace(passage, score=1.0))
        return [gold for _ in queries]
