"""Building a Lucene index and adding to it, and the manifest of its contents.

An index is a folder with `lucene/` and `manifest.json`, which is written last. It may have a dense part, see
`dense_index`. It is built and added to in a `workshop`, where `progress.json` stands in the manifest's
place, so that a killed build can be continued from its last commit.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from typedrag.errors import InputError, RetrievalError
from typedrag.files.locks import check_free
from typedrag.files.text_files import write_text
from typedrag.records import Passage
from typedrag.retrieval.index.analyzers import (
    ENGLISH_ANALYZER,
    analyzer_name,
    check_language,
    indexing_arguments,
    spaced,
)
from typedrag.retrieval.index.lucene import find_jar, find_java, in_java, java_class, java_path, jvm_lock
from typedrag.retrieval.index.workshop import (
    DENSE,
    LUCENE,
    MANIFEST,
    PARTS,
    PROGRESS,
    begun,
    check_begun,
    discard,
    index_of,
    is_workshop,
    opened,
    read_manifest_file,
    refusal,
    workshop,
)
from typedrag.texts.language import ENGLISH, language_of_most

T = TypeVar("T")
FORMAT = 1
"""The format of an index of English passages."""
NEWEST_FORMAT = 2
"""The format of other languages' indexes, which a typedrag that knows only English would search wrongly."""
K1, B = 0.9, 0.4
"""BM25's default parameters: Anserini's, which the papers' baselines use."""

EMBEDDINGS = "embeddings.f32"
"""A file in the dense part: it tells an index from somebody else's folder."""

_BATCH = 2_000
_COMMIT_ROWS = 200_000
_LANGUAGE_ROWS = 200
_WRITER_MEGABYTES = "256"


class RepeatedIdError(InputError):
    """A passage has the id of another one; nothing of its batch was written.

    Args:
        passage_id: The id.
        problem: The places where it occurs.
    """

    def __init__(self, passage_id: str, problem: str) -> None:
        super().__init__(problem, "Give each passage an id of its own")
        self.passage_id = passage_id


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
    analyzer: str = ENGLISH_ANALYZER
    """The analyzer, which turns texts and queries into terms."""
    language: str = ENGLISH
    """ISO 639 code of the analyzer's language; left out for English."""
    k1: float = K1
    """BM25's term frequency saturation, unless a search sets another."""
    b: float = B
    """BM25's length normalisation, unless a search sets another."""
    built_at: str
    """Time of the end of the build, UTC."""
    seconds: float
    """Wall time of the build, or of its last part if it was continued."""
    versions: dict[str, str]
    """The versions of typedrag, the Anserini jar and Java."""

    @model_serializer(mode="wrap")
    def _without_english(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        if self.language == ENGLISH:  # as in manifests of older versions
            del values["language"]
        return values


class _Progress(BaseModel):
    """The progress of a build."""

    sources: tuple[str, ...]
    fingerprints: dict[int, str] = {0: ""}
    """The fingerprint at each number of passages that Lucene may hold; written before Lucene commits."""
    base: Manifest | None = None
    """The manifest of the index that passages are added to; None if the index is new."""
    language: str = ENGLISH
    """The language of the passages."""


def build_index(
    passages: Iterable[Passage],
    out: Path,
    *,
    sources: Sequence[str],
    k1: float = K1,
    b: float = B,
    language: str | None = None,
    force: bool = False,
    resume: bool = False,
    threads: int | None = None,
    on_progress: Callable[[int], object] = lambda rows: None,
) -> Manifest:
    """Index passages with Lucene, streaming them in bounded memory.

    An existing index can be searched until the new one takes its place. A build that fails before anything was
    indexed leaves nothing behind. A build that a repeated id ends can be continued once the later of the two
    passages is mended.

    Args:
        passages: Passages in a fixed order, with unique ids.
        out: Folder of the index.
        sources: Their origin, for the manifest.
        k1: BM25's default for searches.
        b: BM25's default for searches.
        language: ISO 639 code of the passages' language; by default that of most of the first passages.
        force: Replace an index that is there.
        resume: Continue a killed build; the passages must be the same.
        threads: Threads of Lucene's writer; all processors by default.
        on_progress: Called with the number of passages indexed so far.

    Raises:
        InputError: If there is an index already, a passage's id occurs twice, there is no passage,
            a resumed build's passages have changed, k1 or b is out of range, or the language is unknown.
        RetrievalError: If Lucene fails.
    """
    started = time.monotonic()
    check_parameters(k1, b)
    if language:
        check_language(language)
    check_folder(out, force=force, resume=resume)
    parts = batches(peeked(passages, sources), _BATCH)
    with workshop(out, "building", resume=resume, force=force) as folder:
        if (folder / MANIFEST).is_file():  # the build was complete when it was killed
            return read_manifest(folder)
        if (folder / PROGRESS).is_file():
            progress = _read_progress(folder)
        else:
            first = next(parts)
            step = max(1, len(first) // _LANGUAGE_ROWS)
            read_as = language or language_of_most(p.text for p in first[::step])
            progress = _save(folder, _Progress(sources=tuple(sources), language=read_as))
            parts = chain([first], parts)
        if language and language != progress.language:
            raise InputError(f"the build of {out} was begun in language {progress.language}", "Build anew with --force")
        fingerprint, rows = _write_all(parts, folder, progress, threads, on_progress)
        if not rows:
            raise nothing_found("fewer passages than were indexed before", sources)
        return _finish(folder, sources, fingerprint, rows, k1=k1, b=b, language=progress.language, started=started)


def append_index(
    passages: Iterable[Passage],
    out: Path,
    *,
    sources: Sequence[str],
    resume: bool = False,
    force: bool = False,
    threads: int | None = None,
    on_progress: Callable[[int], object] = lambda rows: None,
) -> Manifest:
    """Add passages to a finished index, streaming them in bounded memory.

    The index then answers like one built from all passages; until all are added it answers as before. An addition
    that fails before anything was written, or by a repeated id, leaves nothing behind; others must be continued or
    given up.

    The arguments are those of `build_index`: passages whose ids are new; `force` gives up a killed addition.

    Raises:
        InputError: If a passage's id is in the index or occurs twice, there is no passage, or the passages
            of a continued addition have changed.
        RetrievalError: If there is no finished index, or Lucene fails.
    """
    started = time.monotonic()
    check_addition(out, resume=resume, force=force)
    passages = peeked(passages, sources)
    with workshop(out, "adding", keep=PARTS, resume=resume, force=force) as folder:
        if (folder / PROGRESS).is_file() and not (folder / MANIFEST).is_file():
            progress = _read_progress(folder)
        else:
            held = read_manifest(folder)
            if held != read_manifest(index_of(folder)):  # the addition was complete when it was killed
                return held
            start = {held.passages: ""}
            progress = _Progress(sources=tuple(sources), fingerprints=start, base=held, language=held.language)
            _save(folder, progress)
            (folder / MANIFEST).unlink()
        base = progress.base
        if base is None:
            raise RetrievalError(f"the progress of index {out} cannot be read", "Give it up with --force")
        try:
            fingerprint, rows = _write_all(batches(passages, _BATCH), folder, progress, threads, on_progress)
        except RepeatedIdError:
            discard(folder)  # it is unknown which of the two will be mended, and the other may be written already
            raise
        if not rows:
            raise nothing_found("fewer passages than were added before", sources)
        of_all = [*base.sources, *sources]
        return _finish(folder, of_all, fingerprint, rows, k1=base.k1, b=base.b, language=base.language, started=started)


def _write_all(
    parts: Iterable[list[Passage]],
    out: Path,
    progress: _Progress,
    threads: int | None,
    on_progress: Callable[[int], object],
) -> tuple[str, int]:
    """Write the passages that follow the base's; returns the fingerprint and count of all, 0 if some are missing."""
    lucene, base, index = out / LUCENE, progress.base, index_of(out)
    digest = Fingerprint(base.fingerprint if base else "")
    ids = IdHashes()
    committed = begun = _committed_rows(lucene)
    if begun not in progress.fingerprints:
        raise RetrievalError(f"the build of index {index} broke off within a batch", "Build again with --force")
    known = _Known(lucene) if base else None
    fingerprints = {begun: progress.fingerprints[begun]}
    writer, rows = None, base.passages if base else 0
    fingerprints.setdefault(rows, "")
    before = rows

    def commit() -> None:
        nonlocal writer, committed, fingerprints
        if writer is not None:
            _save(out, progress.model_copy(update={"fingerprints": fingerprints}))
            with _writing(lucene):
                writer.close()
            writer, committed, fingerprints = None, rows, {rows: fingerprints[rows]}

    try:
        for batch in parts:
            for row, passage in enumerate(batch, rows + 1):
                digest.add(passage)
                if row == begun and digest.hexdigest() != fingerprints[begun]:
                    raise InputError(
                        f"the sources of {index} have changed since its build was begun",
                        "Begin anew with --force",
                    )
            ids.add(batch, rows - before + 1)
            fingerprints[rows + len(batch)] = digest.hexdigest()
            if fresh := batch[max(0, committed - rows) :]:
                if known is not None:
                    known.refuse(fresh)
                writer = writer or _open_writer(lucene, progress.language, append=committed > 0, threads=threads)
                _write(writer, fresh, lucene, progress.language)
            rows += len(batch)
            if rows - committed >= _COMMIT_ROWS:
                commit()
            on_progress(rows - before)
    finally:
        commit()  # also when a row does not fit: once it is mended, the build continues from here
        if known is not None:
            known.close()
    if rows < committed:
        return "", 0
    if (held := _committed_rows(lucene)) != rows:
        raise RetrievalError(f"Lucene holds {held} of {rows} passages in {index}", "Build again with --force")
    return digest.hexdigest(), rows


def _finish(
    out: Path,
    sources: Sequence[str],
    fingerprint: str,
    rows: int,
    *,
    k1: float,
    b: float,
    language: str,
    started: float,
) -> Manifest:
    manifest = Manifest(
        format=FORMAT if language == ENGLISH else NEWEST_FORMAT,
        analyzer=analyzer_name(language),
        language=language,
        sources=tuple(sources),
        fingerprint=fingerprint,
        passages=rows,
        k1=k1,
        b=b,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 3),
        versions={
            "typedrag": version("typedrag"),
            "anserini": find_jar().stem,
            "java": find_java().version,
        },
    )
    write_text(out / MANIFEST, manifest.model_dump_json(indent=1))
    (out / PROGRESS).unlink()
    return manifest


def read_manifest(index: Path) -> Manifest:
    """The manifest of a finished index.

    Raises:
        RetrievalError: If there is no index, its build did not finish, or its format is newer.
    """
    return opened(index, lambda: _read_manifest(index))


def _read_manifest(index: Path) -> Manifest:
    path = index / MANIFEST
    if not path.is_file():
        if (index / DENSE / MANIFEST).is_file():
            raise RetrievalError(f"index {index} has no BM25 part", "Search its dense part: --retriever dense, or auto")
        raise refusal(index) or RetrievalError(
            f"{index} is no index", "Build one: typedrag index build SOURCE… --out DIR"
        )
    return read_manifest_file(path, Manifest, NEWEST_FORMAT, f"index {index}", "Build again with --force")


def indexed_sources(index: Path) -> tuple[str, ...]:
    """The sources of an index, without those of an unfinished addition; empty if there is no index."""
    return read_manifest(index).sources if (index / MANIFEST).is_file() else ()


def check_parameters(k1: float, b: float) -> None:
    """Refuse parameters that BM25 cannot use.

    Raises:
        InputError: If k1 or b is out of range.
    """
    if not 0 <= k1 < math.inf or not 0 <= b <= 1:
        raise InputError(f"BM25 has no k1 = {k1}, b = {b}", "Use k1 of 0 or more, b from 0 to 1")


def nothing_found(problem: str, sources: Sequence[str]) -> InputError:
    """The error for sources that hold no passage, or too few."""
    return InputError(f"{problem} in {', '.join(sources)}", "Name sources that hold text")


def peeked(passages: Iterable[T], sources: Sequence[str]) -> Iterator[T]:
    """The same passages, after a check that there is a first one.

    Raises:
        InputError: If there is none.
    """
    stream = iter(passages)
    first = next(stream, None)
    if first is None:
        raise nothing_found("no passage was found", sources)
    return chain([first], stream)


def check_addition(out: Path, *, resume: bool, force: bool) -> None:
    """Refuse an index that cannot be added to.

    Raises:
        InputError: If another process is at work on it, or something begun is neither to be
            continued nor given up.
        RetrievalError: If there is no finished index.
    """
    if is_workshop(out):
        return
    check_free(out)
    if begun(out) != "adding":
        read_manifest(out)
    check_begun(out, "adding", resume=resume, force=force)


def check_folder(out: Path, *, force: bool, resume: bool) -> None:
    """Refuse a folder in which no index may be built.

    Raises:
        InputError: If it holds something else, or an index that is not to be replaced.
    """
    if is_workshop(out):
        return
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file", "Name a folder for the index: --out DIR")
    check_free(out)
    finished = ((out / MANIFEST).is_file() and (out / LUCENE).is_dir()) or (out / DENSE / EMBEDDINGS).is_file()
    if out.is_dir() and not finished and not begun(out) and any(f.name != ".lock" for f in out.iterdir()):
        raise InputError(f"folder {out} holds something that is no index", "Name a new or empty folder")
    check_begun(out, "building", resume=resume, force=force)
    if finished and not begun(out) and not force:
        raise InputError(f"index {out} is there already", "Replace it with --force")


def _read_progress(out: Path) -> _Progress:
    try:
        return _Progress.model_validate_json((out / PROGRESS).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RetrievalError(
            f"the progress of index {index_of(out)} cannot be read", "Begin anew with --force"
        ) from error


def _save(out: Path, progress: _Progress) -> _Progress:
    write_text(out / PROGRESS, progress.model_dump_json())
    return progress


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the passages, or others, in lists of this length, in bounded memory."""
    stream = iter(items)
    while batch := list(islice(stream, size)):
        yield batch


def _open_writer(lucene: Path, language: str, *, append: bool, threads: int | None) -> Any:
    arguments = ["-input", "", "-collection", "JsonCollection", "-index", java_path(lucene), "-storeRaw"]
    arguments += ["-threads", str(threads or os.cpu_count() or 1), "-memoryBuffer", _WRITER_MEGABYTES]
    arguments += indexing_arguments(language)
    with in_java(f"{lucene} cannot be written to", "Is another build at work?"):
        return java_class("io.anserini.index.SimpleIndexer")([*arguments, *(["-append"] if append else [])])


def _writing(lucene: Path) -> AbstractContextManager[None]:
    return in_java(f"{lucene} cannot be written to", "Is the disk full?")


def _write(writer: Any, passages: Sequence[Passage], lucene: Path, language: str) -> None:
    rows = [json.dumps(_row(p, language), ensure_ascii=False) for p in passages]
    with _writing(lucene):
        written = writer.addRawDocuments(rows)
    if written != len(rows):
        raise RetrievalError(f"Lucene refused some of the passages {passages[0].id} to {passages[-1].id}")


def _row(passage: Passage, language: str) -> dict[str, str]:
    """The fields that Anserini indexes (`contents`) and stores; with the passage itself where the two differ."""
    text = contents(passage)
    indexed = spaced(text, language)
    return {"id": passage.id, "contents": indexed, **({} if indexed == text else {"passage": text})}


def contents(passage: Passage) -> str:
    """The text that is indexed and stored for a passage: its title on the first line, then its text."""
    return f"{' '.join(passage.title.split())}\n{passage.text}"


def _committed_rows(lucene: Path) -> int:
    if not any(lucene.glob("segments_*")):
        return 0
    with in_java(f"{lucene} cannot be opened", "Build again with --force"):
        searcher = java_class("io.anserini.search.SimpleSearcher")(java_path(lucene))
        count = int(searcher.get_total_num_docs())
        searcher.close()
        return count


class Fingerprint:
    """A SHA-256 over passages in their order.

    Args:
        before: The fingerprint of the passages before them.
    """

    def __init__(self, before: str = "") -> None:
        self._digest = hashlib.sha256(before.encode())

    def add(self, passage: Passage) -> None:
        """Add one passage."""
        text = f"{passage.id}\x1f{passage.title}\x1f{passage.text}\x1e"
        self._digest.update(text.encode("utf-8", "surrogatepass"))

    def hexdigest(self) -> str:
        """The digest of the passages so far."""
        return self._digest.hexdigest()


class _Known:
    """The ids that an index held when this object was made."""

    def __init__(self, lucene: Path) -> None:
        with _writing(lucene):
            self._searcher = java_class("io.anserini.search.SimpleSearcher")(java_path(lucene))

    def refuse(self, passages: Sequence[Passage]) -> None:
        with jvm_lock:
            there = [p.id for p in passages if self._searcher.doc(p.id) is not None]
        if there:
            raise RepeatedIdError(there[0], f"{len(there)} passages are in the index already, such as '{there[0]}'")

    def close(self) -> None:
        with jvm_lock:
            self._searcher.close()


class IdHashes:
    """Finds ids that occur twice, with 8 to 16 bytes an id: Lucene itself would keep both passages."""

    def __init__(self) -> None:
        self._sorted: list[NDArray[np.uint64]] = []  # each longer than the next, so there are only a few

    def add(self, passages: Sequence[Passage], number: int) -> None:
        """Add the ids of passages, of which the first has this number; raises if one has occurred before."""
        hashes = np.array([self._hash(p.id) for p in passages], dtype=np.uint64)
        again = np.ones(len(hashes), dtype=bool)
        again[np.unique(hashes, return_index=True)[1]] = False
        for before in self._sorted:
            again |= before[np.searchsorted(before, hashes).clip(max=len(before) - 1)] == hashes
        if again.any():
            first = int(again.argmax())
            raise RepeatedIdError(
                passages[first].id, f"passage {number + first} has the id '{passages[first].id}' of one before it"
            )
        hashes.sort()
        while self._sorted and len(self._sorted[-1]) <= len(hashes):
            hashes = np.sort(np.concatenate([self._sorted.pop(), hashes]), kind="stable")
        self._sorted.append(hashes)

    @staticmethod
    def _hash(passage_id: str) -> int:
        return int.from_bytes(hashlib.blake2b(passage_id.encode("utf-8", "surrogatepass"), digest_size=8).digest())
