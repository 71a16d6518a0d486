"""The BM25 part of an index: the folder `lucene/` of a generation, and the manifest of its contents."""

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import BaseModel, ConfigDict

from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.files.text_files import write_text
from typedrag.retrieval.index import lucene
from typedrag.retrieval.index.generations import FORMAT, MANIFEST, current_generation, open_current, read_manifest_file
from typedrag.retrieval.index.lucene import in_java, java_class, java_path, jvm_lock
from typedrag.retrieval.index.passages import Fingerprint, batches, check_ids, repeated_error
from typedrag.text.language import ENGLISH, detect_main_language
from typedrag.text.words import NORMAL_FORM, normal_form

LUCENE = "lucene"
K1, B = 0.9, 0.4  # BM25's default parameters, as Anserini's; Lucene, Elasticsearch and OpenSearch have 1.2, 0.75
_BATCH = 2_000
_FLUSH_ROWS = 200_000  # passages that Lucene holds in memory at most: Anserini's writer would wait for 2 GB of them
_LANGUAGE_ROWS = 50


class Manifest(BaseModel):
    """The contents of an index, and how it was built."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    """Raised with each change that an older typedrag cannot read."""
    sources: tuple[str, ...]
    """The files and folders that it was built from, as they were named."""
    fingerprint: str
    """SHA-256 over ids, titles and texts in their order; after an addition, over the previous
    fingerprint and the new passages."""
    passages: int
    """The number of passages."""
    analyzer: str = lucene.ENGLISH_ANALYZER
    """The analyzer, which turns texts and queries into terms."""
    language: str = ENGLISH
    """ISO 639 code of the analyzer's language."""
    normal_form: str = ""
    """The form of texts and queries before they are analyzed, see `text.words.normal_form`; empty for an index that an
    older typedrag has built, whose texts stayed as they were."""
    k1: float = K1
    """BM25's term frequency saturation, unless a search sets another."""
    b: float = B
    """BM25's length normalisation, unless a search sets another."""
    built_at: str
    """Time of the end of the build, UTC."""
    seconds: float
    """Wall time of the build, or of the addition."""
    versions: dict[str, str]
    """The versions of typedrag, the Anserini jar and Java."""


def has_bm25(index: Path) -> bool:
    folder = current_generation(index)
    return folder is not None and (folder / MANIFEST).is_file()


def read_manifest(index: Path) -> Manifest:
    return open_current(index, read_bm25_manifest)


def read_bm25_manifest(folder: Path) -> Manifest:
    if not (folder / MANIFEST).is_file() and (folder / "dense").is_dir():
        raise RetrievalError(
            f"index {folder.parent} has no BM25 part", "Search its dense part: --retriever dense, or auto"
        )
    return read_manifest_file(folder / MANIFEST, Manifest, f"index {folder.parent}", "Build again with --force")


def check_parameters(k1: float, b: float) -> None:
    if not 0 <= k1 < math.inf or not 0 <= b <= 1:
        raise InputError(f"BM25 has no k1 = {k1}, b = {b}", "Use k1 of 0 or more, b from 0 to 1")


def write_bm25(
    passages: Iterable[Passage],
    folder: Path,
    *,
    sources: Sequence[str],
    k1: float,
    b: float,
    language: str | None,
    base: Manifest | None = None,
    threads: int | None = None,
    on_progress: Callable[[int], object] = lambda rows: None,
) -> Manifest:
    """Index passages, at least one, with Lucene in the folder of a generation, in bounded memory.

    If they are added to a part, `base` is its manifest, whose settings count, and the folder holds its files. See
    `build_index` for the others.
    """
    started = time.monotonic()
    fingerprint, done = Fingerprint(base.fingerprint if base else ""), 0
    parts = batches(check_ids(passages, fingerprint), _BATCH)
    first = next(parts)
    if base:
        sources, k1, b, language = (*base.sources, *sources), base.k1, base.b, base.language
    if language is None:
        language = detect_main_language(p.text for p in first[:: max(1, len(first) // _LANGUAGE_ROWS)])
    form = base.normal_form if base else NORMAL_FORM
    with _Writer(folder / LUCENE, language, form, threads, append=base is not None) as writer:
        for part in chain([first], parts):
            writer.write(part)
            done += len(part)
            on_progress(done)
    rows = done + (base.passages if base else 0)
    with in_java(f"{folder / LUCENE} cannot be read", "Build again with --force"):
        path = java_class("java.nio.file.Paths").get(java_path(folder / LUCENE))
        files = java_class("org.apache.lucene.store.FSDirectory").open(path)
        held = int(java_class("org.apache.lucene.index.SegmentInfos").readLatestCommit(files).totalMaxDoc())
    if held != rows:
        raise RetrievalError(f"Lucene holds {held} of {rows} passages in {folder.parent}", "Is the disk full?")
    manifest = Manifest(
        analyzer=lucene.analyzer_name(language),
        language=language,
        normal_form=form,
        sources=tuple(sources),
        fingerprint=fingerprint.hexdigest(),
        passages=rows,
        k1=k1,
        b=b,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 3),
        versions={
            "typedrag": version("typedrag"),
            "anserini": lucene.find_jar().stem,
            "java": lucene.find_java().version,
        },
    )
    write_text(folder / MANIFEST, manifest.model_dump_json(indent=1))
    return manifest


class _Writer:
    """Lucene's writer. It works in a thread of its own, so that the next passages are read meanwhile."""

    def __init__(self, folder: Path, language: str, form: str, threads: int | None, *, append: bool) -> None:
        self._lucene, self._language, self._form, self._append = folder, language, form, append
        self._arguments = ["-input", "", "-collection", "JsonCollection", "-index", java_path(folder), "-storeRaw"]
        self._arguments += ["-threads", str(threads or os.cpu_count() or 1)]
        if language != ENGLISH:
            with jvm_lock:  # Anserini's own table has half of the languages that Lucene has
                analyzers = java_class("io.anserini.analysis.AnalyzerMap").analyzerMap
                analyzers.put(language, lucene.analyzer_class(language))
            self._arguments += ["-language", language]
        self._java, self._written = ThreadPoolExecutor(1), Future[None]()
        self._written.set_result(None)
        self._writer: Any = None
        self._known: Any = None
        self._unflushed = 0
        if append:
            with in_java(f"{folder} cannot be opened", "Build again with --force"):
                self._known = java_class("io.anserini.search.SimpleSearcher")(java_path(folder))

    def write(self, passages: Sequence[Passage]) -> None:
        """Write passages once those before are written."""
        rows = []
        try:
            for passage in passages:  # the passage itself is stored where what is indexed (`contents`) differs
                text = contents(passage)
                indexed = indexed_text(text, self._language, self._form)
                own = {} if indexed == text else {"passage": text}
                rows.append(orjson.dumps({"id": passage.id, "contents": indexed, **own}).decode())
        except TypeError as error:
            ids = f"{passages[0].id} to {passages[-1].id}"
            raise RetrievalError(f"the passages {ids} cannot be indexed: {error}") from error
        self._written.result()
        self._written = self._java.submit(self._add, passages, rows)

    def _add(self, passages: Sequence[Passage], rows: Sequence[str]) -> None:
        with in_java(f"{self._lucene} cannot be written to", "Is the disk full?"):
            if self._known and (there := [p.id for p in passages if self._known.doc(p.id) is not None]):
                raise repeated_error(there)
            if self._writer is None:
                arguments = [*self._arguments, *(["-append"] if self._append else [])]
                self._writer, self._append = java_class("io.anserini.index.SimpleIndexer")(arguments), True
            written = self._writer.addRawDocuments(rows)
            self._unflushed += len(rows)
            if self._unflushed >= _FLUSH_ROWS:
                self._close_writer()
        if written != len(rows):
            raise RetrievalError(f"Lucene refused some of the passages {passages[0].id} to {passages[-1].id}")

    def _close_writer(self) -> None:
        with in_java(f"{self._lucene} cannot be written to", "Is the disk full?"):
            if self._writer is not None:
                self._writer.close()
            self._writer, self._unflushed = None, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        try:
            if not failed:
                self._written.result()
        finally:
            self._java.submit(self._close_writer).result()
            if self._known:
                with in_java(f"{self._lucene} cannot be closed"):
                    self._known.close()
            self._java.shutdown()


def indexed_text(text: str, language: str, form: str) -> str:
    """A text or a query as an index of this language and normal form has the analyzer read it."""
    return lucene.split_unspaced(normal_form(text) if form else text, language)


def contents(passage: Passage) -> str:
    """The text that is indexed and stored for a passage: its title on the first line, then its text."""
    return f"{' '.join(passage.title.split())}\n{passage.text}"
