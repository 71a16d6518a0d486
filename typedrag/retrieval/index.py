"""Building a Lucene index and adding to it, and the manifest that says what it holds.

An index is a folder: `lucene/`, and `manifest.json`, written last. While it is built or added to
`progress.json` stands in the manifest's place, so a build that was killed is never searched, and
can be continued from its last commit. It may have a dense part, see `dense_index`. What Lucene held
before an addition is kept in `lucene.before/` until that has finished, so that it can be undone.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from typedrag.errors import InputError, RetrievalError
from typedrag.language import ENGLISH, language_of_most
from typedrag.records import Passage
from typedrag.retrieval.analyzers import ENGLISH_ANALYZER, analyzer_name, check_language, indexing_arguments, spaced
from typedrag.retrieval.lucene import find_jar, find_java, java_class, java_path, java_reason, jvm_lock

FORMAT = 1
"""Of an index of English passages."""
NEWEST_FORMAT = 2
"""Of an index of passages in another language, which a typedrag that knows English alone would search wrongly."""
K1, B = 0.9, 0.4
"""BM25's parameters where none are given: Anserini's, which the papers' baselines use."""

DENSE = "dense"
"""The folder of the dense part, if an index has one; see `dense_index`."""
EMBEDDINGS = "embeddings.f32"
"""The file in it that tells it from a folder of somebody else's."""

_BEFORE = "lucene.before"
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
    """Of typedrag, Pyserini, the Anserini jar and Java."""

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

    A build that fails before anything was indexed leaves `out` as it was. One that an id ends which
    occurs twice can be continued, once the later of the two passages is mended.

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
    batches = _batches(passages)
    first = next(batches, None)  # sources that cannot be read at all leave the folder as it is
    if first is None:
        raise nothing_found("no passage was found", sources)
    step = max(1, len(first) // _LANGUAGE_ROWS)
    found = language or language_of_most(p.text for p in first[::step])
    progress = _prepare(out, tuple(sources), found, resume=resume)
    if language and language != progress.language:
        raise InputError(f"the build of {out} was begun in language {progress.language}", "Build anew with --force")
    try:
        fingerprint, rows = _write_all(chain([first], batches), out, progress, threads, on_progress)
    except RepeatedIdError:
        if not any((out / "lucene").glob("segments_*")):  # there is nothing to be continued
            (out / "progress.json").unlink()
        raise
    if not rows:
        raise nothing_found("fewer passages than were indexed before", sources)
    return _finish(out, sources, fingerprint, rows, k1=k1, b=b, language=progress.language, started=started)


def append_index(
    passages: Iterable[Passage],
    out: Path,
    *,
    sources: Sequence[str],
    resume: bool = False,
    threads: int | None = None,
    on_progress: Callable[[int], object] = lambda rows: None,
) -> Manifest:
    """Add passages to a finished index, streaming them in bounded memory.

    It answers as one that was built from all of them. An addition that fails before anything was
    written, or by an id that is not unique, leaves the index as it was; others must be continued.

    Args:
        passages: In a fixed order, with ids that are not in the index.
        out: Folder of the index.
        sources: What the manifest names as their origin, after those before.
        resume: Continue an addition that was killed; the passages must be the same.
        threads: Of Lucene's writer; all processors by default.
        on_progress: Called with the number of passages added so far.

    Raises:
        InputError: If a passage's id is in the index or occurs twice, there is no passage, or those
            of an addition that is continued have changed.
        RetrievalError: If there is no finished index, or Lucene fails.
    """
    started = time.monotonic()
    begun = _read_progress(out) if resume and not (out / "manifest.json").is_file() else None
    base = begun.base if begun and begun.base else read_manifest(out)
    batches = _batches(passages)
    first = next(batches, None)
    if first is None:
        raise nothing_found("no passage was found", sources)
    progress = begun or _Progress(
        sources=tuple(sources), fingerprints={base.passages: ""}, base=base, language=base.language
    )
    if begun is None:
        _keep_lucene(out)
    _save(out, progress)
    (out / "manifest.json").unlink(missing_ok=True)
    try:
        fingerprint, rows = _write_all(chain([first], batches), out, progress, threads, on_progress)
    except RepeatedIdError:
        # which of the two is mended is not known, and what was written may hold the other
        if (out / _BEFORE).is_dir():
            shutil.rmtree(out / "lucene")
            (out / _BEFORE).rename(out / "lucene")
        raise
    finally:
        if _committed_rows(out / "lucene") == base.passages:
            _write_file(out / "manifest.json", base.model_dump_json(indent=1))
            (out / "progress.json").unlink()
            shutil.rmtree(out / _BEFORE, ignore_errors=True)
    if not rows:
        raise nothing_found("fewer passages than were added before", sources)
    return _finish(
        out, [*base.sources, *sources], fingerprint, rows, k1=base.k1, b=base.b, language=base.language, started=started
    )


def _write_all(
    batches: Iterable[list[Passage]],
    out: Path,
    progress: _Progress,
    threads: int | None,
    on_progress: Callable[[int], object],
) -> tuple[str, int]:
    """Write passages after those of the base; gives the fingerprint and the number of all, 0 if some are missing."""
    lucene, base = out / "lucene", progress.base
    digest = Fingerprint(base.fingerprint if base else "")
    ids = _IdHashes()
    committed = begun = _committed_rows(lucene)
    if begun not in progress.fingerprints:
        raise RetrievalError(f"the build of index {out} broke off within a batch", "Build again with --force")
    known = _Known(lucene) if base else None
    fingerprints = {begun: progress.fingerprints[begun]}
    writer, rows = None, base.passages if base else 0
    fingerprints.setdefault(rows, "")
    before = rows

    def commit() -> None:
        nonlocal writer, committed, fingerprints
        if writer is not None:
            _save(out, progress.model_copy(update={"fingerprints": fingerprints}))
            _run(writer.close, lucene)
            writer, committed, fingerprints = None, rows, {rows: fingerprints[rows]}

    try:
        for batch in batches:
            for row, passage in enumerate(batch, rows + 1):
                digest.add(passage)
                if row == begun and digest.hexdigest() != fingerprints[begun]:
                    raise InputError(
                        f"the sources of {out} have changed since its build was begun",
                        "Build anew with --force",
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
        raise RetrievalError(f"Lucene holds {found} of {rows} passages in {out}", "Build again with --force")
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
            "pyserini": version("pyserini"),
            "anserini": find_jar().stem,
            "java": find_java().version,
        },
    )
    _write_file(out / "manifest.json", manifest.model_dump_json(indent=1))
    (out / "progress.json").unlink()
    shutil.rmtree(out / _BEFORE, ignore_errors=True)
    return manifest


def read_manifest(index: Path) -> Manifest:
    """The manifest of a finished index.

    Raises:
        RetrievalError: If there is no index, its build did not finish, or it is of a newer format.
    """
    path = index / "manifest.json"
    if not path.is_file():
        if (index / "progress.json").is_file():
            adding = _read_progress(index).base is not None
            raise RetrievalError(
                f"{'an addition to' if adding else 'the build of'} index {index} did not finish",
                f"Continue it with: typedrag index {'append' if adding else 'build'} SOURCE… --out DIR --resume",
            )
        if (index / DENSE / "manifest.json").is_file():
            raise RetrievalError(f"index {index} has no BM25 part", "Search its dense part: --retriever dense, or auto")
        raise RetrievalError(f"{index} is no index", "Build one: typedrag index build SOURCE… --out DIR")
    try:
        data = json.loads(path.read_text("utf-8"))
        if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > NEWEST_FORMAT:
            raise RetrievalError(f"index {index} is of a newer format ({data['format']})", "Update typedrag")
        return Manifest.model_validate(data)
    except (OSError, ValueError, ValidationError) as error:
        raise RetrievalError(f"the manifest of index {index} cannot be read", "Build again with --force") from error


def indexed_sources(index: Path) -> tuple[str, ...]:
    """The sources of what an index holds, without those of an addition that did not finish; none if there is none."""
    if (index / "manifest.json").is_file():
        return read_manifest(index).sources
    base = _read_progress(index).base if (index / "progress.json").is_file() else None
    return base.sources if base else ()


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


def check_folder(out: Path, *, force: bool, resume: bool) -> None:
    """Refuse a folder that is not ours to write to."""
    finished = ((out / "manifest.json").is_file() and (out / "lucene").is_dir()) or (out / DENSE / EMBEDDINGS).is_file()
    begun = (out / "progress.json").is_file()
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file", "Name a folder for the index: --out DIR")
    if out.is_dir() and any(out.iterdir()) and not finished and not begun:
        raise InputError(f"folder {out} holds something that is no index", "Name a new or empty folder")
    if (finished or begun) and not force and not (begun and resume):
        raise InputError(
            f"index {out} is there already" if finished else f"a build of index {out} was begun and not finished",
            "Replace it with --force" if finished else "Continue it with --resume, or replace it with --force",
        )


def remove_bm25(out: Path) -> None:
    """Delete the BM25 part of an index, or what a build or an addition has left of one, if there is any."""
    for name in ("manifest.json", "progress.json"):
        (out / name).unlink(missing_ok=True)
    for name in ("lucene", _BEFORE):
        shutil.rmtree(out / name, ignore_errors=True)


def remove_dense(out: Path) -> None:
    """Delete the dense part of an index, if it has one."""
    if (out / DENSE / EMBEDDINGS).is_file():
        shutil.rmtree(out / DENSE, ignore_errors=True)


def _prepare(out: Path, sources: tuple[str, ...], language: str, *, resume: bool) -> _Progress:
    """An index folder ready to be written to, and how far it has come."""
    if resume and (out / "progress.json").is_file():
        progress = _read_progress(out)
        if progress.base is not None:
            raise InputError(
                f"passages were being added to index {out}",
                "Continue with: typedrag index append SOURCE… --out DIR --resume, or build again with --force",
            )
        return progress
    try:
        remove_bm25(out)
        remove_dense(out)
        out.mkdir(parents=True, exist_ok=True)
        return _save(out, _Progress(sources=sources, language=language))
    except OSError as error:
        raise InputError(f"folder {out} cannot be written to: {error}", "Name another: --out DIR") from error


def _keep_lucene(out: Path) -> None:
    """Keep what Lucene holds; links are enough, as it never changes a file once it is written."""

    def link(file: str, kept: str) -> None:
        try:
            os.link(file, kept)
        except OSError:  # not every file system has links
            shutil.copy2(file, kept)

    shutil.rmtree(out / _BEFORE, ignore_errors=True)  # of an addition that was killed amid this
    try:
        shutil.copytree(out / "lucene", out / _BEFORE, copy_function=link, ignore=shutil.ignore_patterns("write.lock"))
    except OSError as error:
        shutil.rmtree(out / _BEFORE, ignore_errors=True)
        raise RetrievalError(f"{out} cannot be written to: {error}", "Is the disk full?") from error


def _read_progress(out: Path) -> _Progress:
    try:
        return _Progress.model_validate_json((out / "progress.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise RetrievalError(f"the progress of index {out} cannot be read", "Build again with --force") from error


def _save(out: Path, progress: _Progress) -> _Progress:
    _write_file(out / "progress.json", progress.model_dump_json())
    return progress


def _write_file(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text, "utf-8")
    part.replace(path)


def _batches(passages: Iterable[Passage]) -> Iterator[list[Passage]]:
    stream = iter(passages)
    while batch := list(islice(stream, _BATCH)):
        yield batch


def _open_writer(lucene: Path, language: str, *, append: bool, threads: int | None) -> Any:
    arguments = ["-input", "", "-collection", "JsonCollection", "-index", java_path(lucene), "-storeRaw"]
    arguments += ["-threads", str(threads or os.cpu_count() or 1), "-memoryBuffer", _WRITER_MEGABYTES]
    arguments += indexing_arguments(language)
    try:
        with jvm_lock:
            return java_class("io.anserini.index.SimpleIndexer")([*arguments, *(["-append"] if append else [])])
    except Exception as error:  # pyjnius raises Java's exceptions of any kind
        reason = java_reason(error)
        raise RetrievalError(f"{lucene} cannot be written to: {reason}", "Is another build at work?") from error


def _run(action: Callable[[], Any], lucene: Path) -> Any:
    try:
        with jvm_lock:
            return action()
    except Exception as error:  # pyjnius raises Java's exceptions of any kind
        raise RetrievalError(f"{lucene} cannot be written to: {java_reason(error)}", "Is the disk full?") from error


def _write(writer: Any, passages: Sequence[Passage], lucene: Path, language: str) -> None:
    rows = [json.dumps(_row(p, language), ensure_ascii=False) for p in passages]
    if _run(lambda: writer.addRawDocuments(rows), lucene) != len(rows):
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
    try:
        with jvm_lock:
            searcher = java_class("io.anserini.search.SimpleSearcher")(java_path(lucene))
            count = int(searcher.get_total_num_docs())
            searcher.close()
            return count
    except Exception as error:  # pyjnius raises Java's exceptions of any kind
        reason = java_reason(error)
        raise RetrievalError(f"{lucene} cannot be opened: {reason}", "Build again with --force") from error


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
        self._searcher = _run(lambda: java_class("io.anserini.search.SimpleSearcher")(java_path(lucene)), lucene)

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
