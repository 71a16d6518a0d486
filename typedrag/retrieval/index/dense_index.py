"""The dense part of an index: the embeddings of its passages, built, added to and continued.

It is the folder `dense/` of an index, beside `lucene/` or alone: `embeddings.f32`, a row of float32
for each passage; `passages.jsonl`, their ids, titles and texts in the same order; and
`manifest.json`, which says how many rows count: none until the build has finished. Rows are
only ever added: the next process finds the rows of a killed one, and a part can be searched as before
while it is added to. (FAISS's own file of a flat index holds the same
numbers, but can only be written whole.) It is built and added to in a `workshop`, which links to
the rows that count.
"""

from __future__ import annotations

import json
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from typedrag.errors import InputError, RetrievalError
from typedrag.files.locks import check_free
from typedrag.files.text_files import write_text
from typedrag.records import Passage
from typedrag.retrieval.encoder import Embeddings, Encoder
from typedrag.retrieval.index.approximate import APPROXIMATE, check_factory, factory_for, write_approximate
from typedrag.retrieval.index.dense_manifest import (
    FORMAT,
    NEWEST_FORMAT,
    DenseManifest,
    EncoderSettings,
    has_dense,
    read_any_manifest,
    read_dense_manifest,
)
from typedrag.retrieval.index.index import EMBEDDINGS, Fingerprint, RepeatedIdError, batches, peeked
from typedrag.retrieval.index.workshop import BM25_PARTS, DENSE, PARTS, check_begun, discard, index_of, workshop

PASSAGES = "passages.jsonl"
_ROWS = 512
"""Passages that are embedded at once, and lost if the process is killed meanwhile."""
_SAME = 0.99
"""The least cosine between a model's embedding of a passage and the stored one: other processors and batches
change only the last digits, another model changes everything."""


def build_dense(
    passages: Iterable[Passage],
    index: Path,
    encoder: Encoder,
    *,
    sources: Sequence[str],
    fingerprint: str = "",
    approximate: str | None = None,
    resume: bool = True,
    force: bool = False,
    on_progress: Callable[[int], object] = lambda rows: None,
) -> DenseManifest:
    """Embed those of an index's passages that are not yet embedded, in bounded memory.

    Args:
        passages: All passages of the index, with unique ids. Those embedded already, by a killed build or before
            passages were added, are not embedded again.
        index: Folder of the index.
        encoder: Embeds them.
        sources: Their origin, for the manifest.
        fingerprint: The passages' fingerprint; by default it is computed from them in their order.
        approximate: FAISS's factory string of an approximate index, such as `IVF4096,PQ48`, or `auto`, by the number
            of passages; by default as before, and without one in a new part.
        resume: Also use the embeddings of an unfinished addition.
        force: Embed all of them anew.
        on_progress: Called with the number of passages embedded so far, earlier ones included.

    Raises:
        InputError: If there is no passage, an id occurs twice, a passage has changed since it was
            embedded, an embedded passage is not among them, or another model built the index.
        RetrievalError: If the encoder or the folder fails.
    """
    started = time.monotonic()
    passages = peeked(passages, sources)
    keep = BM25_PARTS if force else PARTS
    with workshop(index, "building", keep=keep, resume=not force, force=force) as folder:
        rows = _Rows(folder, encoder, keep=None if resume else _counted(folder), approximate=approximate)
        done, digest, ids = 0, Fingerprint(), set[str]()
        for batch in batches(passages, _ROWS):
            for passage in batch:
                digest.add(passage)
                if passage.id in ids:
                    raise _repeated(passage)
                ids.add(passage.id)
            rows.add([p for p in batch if not rows.holds(p)])
            done += len(batch)
            on_progress(done)
        if rows.count != done:
            raise InputError(
                f"the dense part of {index_of(folder)} holds {rows.count} passages, "
                f"{rows.count - done} of which are in no source",
                "Build it again with --force",
            )
        return rows.finish(sources, fingerprint or digest.hexdigest(), started)


def append_dense(
    passages: Iterable[Passage],
    index: Path,
    encoder: Encoder,
    *,
    sources: Sequence[str],
    resume: bool = False,
    force: bool = False,
    on_progress: Callable[[int], object] = lambda rows: None,
) -> DenseManifest:
    """Add passages to a dense part that has no BM25 part beside it.

    The arguments are those of `build_dense`: passages whose ids are new, and the encoder that built the part;
    `force` gives up a killed addition.

    Raises:
        InputError: If there is no passage, an id is there already or occurs twice, or another model built the
            index.
        RetrievalError: If there is no finished dense part, or the encoder or the folder fails.
    """
    started = time.monotonic()
    read_dense_manifest(index)
    check_free(index)
    check_begun(index, "adding", resume=resume, force=force)
    passages = peeked(passages, sources)
    with workshop(index, "adding", keep=PARTS, resume=resume, force=force) as folder:
        base = read_dense_manifest(index_of(folder))
        before = {p.id for p in islice(_stored(folder), base.passages)}
        rows = _Rows(folder, encoder, keep=None if resume else base.passages)
        others = InputError(f"the addition to {index_of(folder)} had other passages before", "Begin anew with --force")
        held = [p.id for p in islice(_stored(folder), base.passages, None)]
        done, digest = 0, Fingerprint(base.fingerprint)
        for batch in batches(passages, _ROWS):
            for number, passage in enumerate(batch, done):
                digest.add(passage)
                if number < len(held) and passage.id != held[number]:
                    raise others
                if passage.id in before:
                    discard(folder)
                    raise _repeated(passage)
                before.add(passage.id)
            rows.add([p for p in batch if not rows.holds(p)])
            done += len(batch)
            on_progress(done)
        if rows.count != base.passages + done:
            raise others
        return rows.finish([*base.sources, *sources], digest.hexdigest(), started)


class _Rows:
    """The complete rows of a dense part, which can be added to.

    Args:
        index: Folder of the index.
        encoder: Must be the one that embedded the rows that are there.
        keep: The number of rows to keep; all by default.
        approximate: See `build_dense`.

    Raises:
        InputError: If another model built the index, it cannot be written to, or FAISS makes no such approximate index.
    """

    def __init__(self, index: Path, encoder: Encoder, keep: int | None = None, approximate: str | None = None) -> None:
        self.index, self.encoder = index_of(index), encoder
        self.folder = index / DENSE
        self.settings = EncoderSettings.of(encoder)
        before = read_any_manifest(index).approximate if has_dense(index) else ""
        self._approximate = before if approximate is None else approximate
        check_factory(self._approximate, self.settings.dimensions)
        self._embeddings, self._passages = self.folder / EMBEDDINGS, self.folder / PASSAGES
        if has_dense(index):
            _check_settings(self.settings, index)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for file in (self._embeddings, self._passages):
                file.touch()
            bounds = line_ends(self._passages)
            size = 4 * self.settings.dimensions
            rows = min(len(bounds), self._embeddings.stat().st_size // size)
            self.count = rows if keep is None else min(rows, keep)
            os.truncate(self._embeddings, self.count * size)
            os.truncate(self._passages, bounds[self.count - 1] if self.count else 0)
            if not has_dense(index):
                self._write_manifest(DenseManifest(encoder=self.settings, approximate=self._approximate))
        except OSError as error:
            raise InputError(f"folder {self.index} cannot be written to: {error}", "Name another: --out DIR") from error
        self._held = {p.id: hash(p) for p in _stored(index)}
        if self.count:
            check_encoder(encoder, index)

    def holds(self, passage: Passage) -> bool:
        """True if a passage is embedded already.

        Raises:
            InputError: If the passage embedded under its id has another title or text.
        """
        held = self._held.get(passage.id)
        if held is not None and held != hash(_as_kept(passage)):
            raise InputError(
                f"passage {passage.id} of {self.index} has changed since it was embedded", "Build again with --force"
            )
        return held is not None

    def add(self, passages: Sequence[Passage]) -> None:
        """Embed passages and store them."""
        if not passages:
            return
        stored = [_as_kept(p) for p in passages]
        embeddings = self.encoder.encode_passages(stored)
        lines = (json.dumps({"id": p.id, "title": p.title, "text": p.text}, ensure_ascii=False) for p in stored)
        try:
            with self._embeddings.open("ab") as file:
                embeddings.tofile(file)
            with self._passages.open("ab") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
        except OSError as error:
            raise RetrievalError(f"{self.folder} cannot be written to: {error}", "Make room, and --resume") from error
        self._held.update({p.id: hash(p) for p in stored})
        self.count += len(stored)

    def finish(self, sources: Sequence[str], fingerprint: str, started: float) -> DenseManifest:
        """Write the manifest, from which on all rows count."""
        for file in (self._embeddings, self._passages):
            with file.open("rb") as held:
                os.fsync(held.fileno())
        factory = factory_for(self._approximate, self.count, self.settings.dimensions)
        if factory:
            embeddings = read_embeddings(self.folder.parent, self.count, self.settings.dimensions)
            write_approximate(self.folder, embeddings, factory)
        else:
            (self.folder / APPROXIMATE).unlink(missing_ok=True)
        manifest = DenseManifest(
            format=NEWEST_FORMAT if factory else FORMAT,
            approximate=factory,
            sources=tuple(sources),
            fingerprint=fingerprint,
            passages=self.count,
            encoder=self.settings,
            built_at=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - started, 3),
            versions={p: version(p) for p in ("typedrag", "sentence-transformers", "torch", "faiss-cpu")},
        )
        self._write_manifest(manifest)
        return manifest

    def _write_manifest(self, manifest: DenseManifest) -> None:
        write_text(self.folder / "manifest.json", manifest.model_dump_json(indent=1))


def _check_settings(settings: EncoderSettings, index: Path) -> None:
    before = read_any_manifest(index).encoder
    for name in ("dimensions", "query_prompt", "passage_prompt", "normalised"):
        had, has = getattr(before, name), getattr(settings, name)
        if had != has:
            raise InputError(
                f"the dense part of {index_of(index)} was built with {before.model}, "
                f"whose {name.replace('_', ' ')} is {had!r}; that of {settings.model} is {has!r}",
                "Use the same model, or build again with --force",
            )


def check_encoder(encoder: Encoder, index: Path) -> None:
    """Refuse an encoder whose embedding of a dense part's first passage differs from the stored one.

    Raises:
        InputError: If it differs.
    """
    built_with = read_any_manifest(index).encoder
    [row] = encoder.encode_passages([next(_stored(index))])
    [stored] = read_embeddings(index, 1, built_with.dimensions)
    if not same_embedding(row, stored):
        raise InputError(
            f"the dense part of {index_of(index)} was built with {built_with.model}, whose embeddings are not those of "
            f"{encoder.name} here",
            "Use the same model, or build again with --force",
        )


def same_embedding(row: Embeddings, stored: Embeddings) -> bool:
    """True if two embeddings of a text, of one dimension each, are the same model's."""
    lengths = float(np.linalg.norm(row) * np.linalg.norm(stored))
    return row.shape == stored.shape and float(row @ stored) >= _SAME * lengths


def read_embeddings(index: Path, rows: int, dimensions: int) -> Embeddings:
    """The first rows of a dense part, read from disk as they are used. [rows, dimensions]"""
    return np.memmap(index / DENSE / EMBEDDINGS, dtype=np.float32, mode="r", shape=(rows, dimensions))


def line_ends(file: Path) -> NDArray[np.int64]:
    """The end of each complete line of a file, in bytes from the beginning."""
    ends, before = array("q"), 0
    with file.open("rb") as lines:
        for line in lines:
            before += len(line)
            if line.endswith(b"\n"):
                ends.append(before)
    return np.frombuffer(ends, dtype=np.int64)


def parse_passage(line: bytes) -> Passage:
    """The passage of a line of `passages.jsonl`."""
    return Passage(**json.loads(line))


def _counted(index: Path) -> int:
    """The number of rows that a dense part's manifest counts; 0 if there is no manifest."""
    return read_any_manifest(index).passages if has_dense(index) else 0


def _stored(index: Path) -> Iterator[Passage]:
    with (index / DENSE / PASSAGES).open("rb") as lines:
        yield from map(parse_passage, lines)


def _as_kept(passage: Passage) -> Passage:
    # as Lucene returns them, so that a passage is the same whichever part found it
    return Passage(passage.id, passage.text, " ".join(passage.title.split()))


def _repeated(passage: Passage) -> InputError:
    return RepeatedIdError(passage.id, f"the id {passage.id} occurs again")
