"""Building a Lucene index and adding to it, and the manifest that says what it holds.

An index is a folder: `lucene/`, and `manifest.json`, written last. It may have a dense part, see
`dense_index`. It is built and added to in a `workshop`, where `progress.json` stands in the manifest's
place, so that what was killed can be continued from its last commit.
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
from typing import Any

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

FORMAT = 1
"""Of an index of English passages."""
NEWEST_FORMAT = 2
"""Of an index of passages in another language, which a typedrag that knows English alone would search wrongly."""
K1, B = 0.9, 0.4
"""BM25's parameters where none are given: Anserini's, which the papers' baselines use."""

EMBEDDINGS = "embeddings.f32"
"""The file in the dense part that tells it from a folder of somebody else's."""

_BATCH = 2_000
_COMMIT_ROWS = 200_000
_LANGUAGE_ROWS = 200
_WRITER_MEGABYTES = "256"


class RepeatedIdError(InputError):
    """A passage whose id another one has; nothing of its batch was written.

    Args:
        passage_id: The id.
        problem: Where it occurs.
    """

    def __init__(self, passage_id: str, problem: str) -> None:
        super().__init__(problem, "Give each passage an id of its own")
        self.passage_id = passage_id


class Manifest(BaseModel):
    """What an index holds and how it was built."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    """Raised when an older typedrag could no longer read the index."""
    sources: tuple[str, ...]
    """The files and folders it was built from, as they were named."""
    fingerprint: str
    """SHA-256 over ids, titles and texts in their order; where passages were added, over the
    fingerprint before and those passages."""
    passages: int
    """How many it holds."""
    analyzer: str = ENGLISH_ANALYZER
    """How texts and queries become terms."""
    language: str = ENGLISH
    """ISO 639 code of the language whose analyzer it is; left out where it is English."""
    k1: float = K1
    """BM25's term frequency saturation, unless a search sets another."""
    b: float = B
    """BM25's length normalisation, unless a search sets another."""
    built_at: str
    """Time of the end of the build, UTC."""
    seconds: float
    """Wall time of the build, or of its last part if it was continued."""
    versions: dict[str, str]
    """Of typedrag, the Anserini jar and Java."""

    @model_serializer(mode="wrap")
    def _without_english(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        if self.language == ENGLISH:  # as those before had it
            del values["language"]
        return values


class _Progress(BaseModel):
    """How far a build may have come."""

    sources: tuple[str, ...]
    fingerprints: dict[int, str] = {0: ""}
    """By each number of passages that Lucene may hold, as it is written before Lucene commits."""
    base: Manifest | None = None
    """Of the index that passages are added to; None of one that is built."""
    language: str = ENGLISH
    """Of the passages."""


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

    An index that is there is searched as it was until the new one takes its place. A build that fails
    before anything was indexed leaves nothing behind. One that an id ends which occurs twice can be
    continued, once the later of the two passages is mended.

    Args:
        passages: In a fixed order, with unique ids.
        out: Folder of the index.
        sources: What the manifest names as their origin.
        k1: BM25's default for searches.
        b: BM25's default for searches.
        language: ISO 639 code of the passages' language; by default that of most of the first ones.
        force: Replace an index that is there.
        resume: Continue a build that was killed; the passages must be the same.
        threads: Of Lucene's writer; all processors by default.
        on_progress: Called with the number of passages indexed so far.

    Raises:
        InputError: If there is an index already, a passage's id occurs twice, there is no passage,
            a resumed build's passages have changed, k1 or b is out of its range, or there is no such
            language.
        RetrievalError: If Lucene fails.
    """
    started = time.monotonic()
    check_parameters(k1, b)
    if language:
        check_language(language)
    check_folder(out, force=force, resume=resume)
    parts = batches(peeked(passages, sources), _BATCH)
    with workshop(out, "building", resume=resume, force=force) as folder:
        if (folder / MANIFEST).is_file():  # all was done when it was killed
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

    It answers as one that was built from all of them, and as before until all are added. An addition
    that fails before anything was written, or by an id that is not unique, leaves nothing behind;
    others must be continued or given up.

    It takes what `build_index` takes, passages with ids that are not in the index; `force` gives up an addition that
    was killed.

    Raises:
        InputError: If a passage's id is in the index or occurs twice, there is no passage, or those
            of an addition that is continued have changed.
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
            if held != read_manifest(index_of(folder)):  # all was done when it was killed
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
            discard(folder)  # which of the two is mended is not known, and what was written may hold the other
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
    """Write passages after those of the base; gives the fingerprint and the number of all, 0 if some are missing."""
    lucene, base, index = out / LUCENE, progress.base, index_of(out)
    digest = Fingerprint(base.fingerprint if base else "")
    ids = _IdHashes()
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
        commit()  # also when a row does not fit: once it is mended, the build goes on from here
        if known is not None:
            known.close()
    if rows < committed:
        return "", 0
    if (found := _committed_rows(lucene)) != rows:
        raise RetrievalError(f"Lucene holds {found} of {rows} passages in {index}", "Build again with --force")
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
        RetrievalError: If there is no index, its build did not finish, or it is of a newer format.
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
    """The sources of what an index holds, without those of an addition that did not finish; none if there is none."""
    return read_manifest(index).sources if (index / MANIFEST).is_file() else ()


def check_parameters(k1: float, b: float) -> None:
    """Refuse what BM25 cannot compute with.

    Raises:
        InputError: If k1 or b is out of its range.
    """
    if not 0 <= k1 < math.inf or not 0 <= b <= 1:
        raise InputError(f"BM25 has no k1 = {k1}, b = {b}", "Use k1 of 0 or more, b from 0 to 1")


def nothing_found(problem: str, sources: Sequence[str]) -> InputError:
    """The refusal of sources that hold no passage, or too few."""
    return InputError(f"{problem} in {', '.join(sources)}", "Name sources that hold text")


def peeked(passages: Iterable[Passage], sources: Sequence[str]) -> Iterator[Passage]:
    """The same passages, the first of which could be read.

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
        InputError: If another process is at work on it, or something was begun and is to be neither
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
    """Refuse a folder that is not ours to build an index in.

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


def batches(passages: Iterable[Passage], size: int) -> Iterator[list[Passage]]:
    """The passages in lists of this length, in bounded memory."""
    stream = iter(passages)
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
    """What Anserini indexes, its `contents`, and stores of a passage: also the passage where they are not the same."""
    said = contents(passage)
    indexed = spaced(said, language)
    return {"id": passage.id, "contents": indexed, **({} if indexed == said else {"passage": said})}


def contents(passage: Passage) -> str:
    """What is indexed and stored of a passage: its title on the first line, then its text."""
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
    """SHA-256 over passages in their order.

    Args:
        before: The fingerprint of those that they are added to.
    """

    def __init__(self, before: str = "") -> None:
        self._digest = hashlib.sha256(before.encode())

    def add(self, passage: Passage) -> None:
        """Take in one more."""
        said = f"{passage.id}\x1f{passage.title}\x1f{passage.text}\x1e"
        self._digest.update(said.encode("utf-8", "surrogatepass"))

    def hexdigest(self) -> str:
        """Of those so far."""
        return self._digest.hexdigest()


class _Known:
    """The ids that an index held when this was opened."""

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


class _IdHashes:
    """Finds ids that occur twice, at 8 bytes an id, twice that at times: Lucene itself would keep both."""

    def __init__(self) -> None:
        self._sorted: list[NDArray[np.uint64]] = []  # each longer than the next, so that they are few

    def add(self, passages: Sequence[Passage], number: int) -> None:
        """Take in the ids of passages, the first of which has this number, unless one occurs again."""
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
