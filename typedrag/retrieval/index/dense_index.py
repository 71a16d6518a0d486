"""The dense part of an index: the embeddings of its passages, built, added to and continued.

It is the folder `dense/` of an index, beside `lucene/` or alone: `embeddings.f32`, a row of float32
for each passage; `passages.jsonl`, their ids, titles and texts in the same order; and
`manifest.json`, which says how many rows count, none of them until the build has finished. Rows are
only ever added: what a process that was killed has embedded is there for the next one, and a part
that is being added to can be searched as it was. (FAISS's own file of a flat index holds the same
numbers, but can only be written whole.) It is made and added to in a `workshop`, to which rows that count
are linked.
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
from typedrag.retrieval.index.dense_manifest import (
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
"""Passages that are embedded at once, and lost where the process is killed amid them."""
_SAME = 0.99
"""The cosine that a model's embedding of a passage has at least with the one that is kept of it: other
processors and batches change the last digits alone, another model everything."""


def build_dense(
    passages: Iterable[Passage],
    index: Path,
    encoder: Encoder,
    *,
    sources: Sequence[str],
    fingerprint: str = "",
    resume: bool = True,
    force: bool = False,
    on_progress: Callable[[int], object] = lambda rows: None,
) -> DenseManifest:
    """Embed what is not yet embedded of an index's passages, in bounded memory.

    Args:
        passages: All that the index holds, with unique ids. Those that are embedded already, by a
            build that was killed or before passages were added, are not embedded again.
        index: Folder of the index.
        encoder: Embeds them.
        sources: What the manifest names as their origin.
        fingerprint: Of the passages; by default it is taken of them in their order.
        resume: Use also what was embedded by an addition that did not come to its end.
        force: Embed all anew.
        on_progress: Called with the number of passages embedded so far, those before included.

    Raises:
        InputError: If there is no passage, an id occurs twice, a passage has changed since it was
            embedded, some are embedded that are not among them, or it is another model's index.
        RetrievalError: If the encoder or the folder fails.
    """
    started = time.monotonic()
    passages = peeked(passages, sources)
    keep = BM25_PARTS if force else PARTS
    with workshop(index, "building", keep=keep, resume=not force, force=force) as folder:
        rows = _Rows(folder, encoder, keep=None if resume else _counted(folder))
        done, digest, seen = 0, Fingerprint(), set[str]()
        for batch in batches(passages, _ROWS):
            for passage in batch:
                digest.add(passage)
                if passage.id in seen:
                    raise _repeated(passage)
                seen.add(passage.id)
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
    """Add passages to a dense part that stands alone.

    It takes what `build_dense` takes, passages with ids that it does not hold and the encoder that it was built with;
    `force` gives up an addition that was killed.

    Raises:
        InputError: If there is no passage, an id is there already or occurs twice, or it is another
            model's index.
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
    """The rows of a dense part, complete ones only, and the way to add to them.

    Args:
        index: Folder of the index.
        encoder: Must be the one that embedded those that are there.
        keep: Of the rows that are there; all by default.

    Raises:
        InputError: If it is another model's index, or cannot be written to.
    """

    def __init__(self, index: Path, encoder: Encoder, keep: int | None = None) -> None:
        self.index, self.encoder = index_of(index), encoder
        self.folder = index / DENSE
        self.settings = EncoderSettings.of(encoder)
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
                self._write_manifest(DenseManifest(encoder=self.settings))
        except OSError as error:
            raise InputError(f"folder {self.index} cannot be written to: {error}", "Name another: --out DIR") from error
        self._held = {p.id: hash(p) for p in _stored(index)}
        if self.count:
            check_encoder(encoder, index)

    def holds(self, passage: Passage) -> bool:
        """Whether a passage is embedded already.

        Raises:
            InputError: If one with its id, but another title or text is.
        """
        held = self._held.get(passage.id)
        if held is not None and held != hash(_as_kept(passage)):
            raise InputError(
                f"passage {passage.id} of {self.index} has changed since it was embedded", "Build again with --force"
            )
        return held is not None

    def add(self, passages: Sequence[Passage]) -> None:
        """Embed passages and keep them."""
        if not passages:
            return
        kept = [_as_kept(p) for p in passages]
        embeddings = self.encoder.encode_passages(kept)
        lines = (json.dumps({"id": p.id, "title": p.title, "text": p.text}, ensure_ascii=False) for p in kept)
        try:
            with self._embeddings.open("ab") as file:
                embeddings.tofile(file)
            with self._passages.open("ab") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
        except OSError as error:
            raise RetrievalError(f"{self.folder} cannot be written to: {error}", "Make room, and --resume") from error
        self._held.update({p.id: hash(p) for p in kept})
        self.count += len(kept)

    def finish(self, sources: Sequence[str], fingerprint: str, started: float) -> DenseManifest:
        """Write the manifest: from now on all rows count."""
        for file in (self._embeddings, self._passages):
            with file.open("rb") as held:
                os.fsync(held.fileno())
        manifest = DenseManifest(
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
    """Refuse an encoder that embeds the first passage of a dense part otherwise than it is kept.

    Raises:
        InputError: If it does.
    """
    built_with = read_any_manifest(index).encoder
    [row] = encoder.encode_passages([next(_stored(index))])
    [kept] = read_embeddings(index, 1, built_with.dimensions)
    if row.shape != kept.shape or float(row @ kept) < _SAME * float(np.linalg.norm(row) * np.linalg.norm(kept)):
        raise InputError(
            f"the dense part of {index_of(index)} was built with {built_with.model}, whose embeddings are not those of "
            f"{encoder.name} here",
            "Use the same model, or build again with --force",
        )


def read_embeddings(index: Path, rows: int, dimensions: int) -> Embeddings:
    """The first rows of a dense part, read from the disk as they are used. [rows, dimensions]"""
    return np.memmap(index / DENSE / EMBEDDINGS, dtype=np.float32, mode="r", shape=(rows, dimensions))


def line_ends(file: Path) -> NDArray[np.int64]:
    """Where each complete line of a file ends, in bytes from its beginning."""
    ends, before = array("q"), 0
    with file.open("rb") as lines:
        for line in lines:
            before += len(line)
            if line.endswith(b"\n"):
                ends.append(before)
    return np.frombuffer(ends, dtype=np.int64)


def parse_passage(line: bytes) -> Passage:
    """A passage as `passages.jsonl` holds it."""
    return Passage(**json.loads(line))


def _counted(index: Path) -> int:
    """Rows of a dense part that its manifest counts, 0 if there is none."""
    return read_any_manifest(index).passages if has_dense(index) else 0


def _stored(index: Path) -> Iterator[Passage]:
    with (index / DENSE / PASSAGES).open("rb") as lines:
        yield from map(parse_passage, lines)


def _as_kept(passage: Passage) -> Passage:
    # as Lucene gives them, so that a passage is the same whichever part found it
    return Passage(passage.id, passage.text, " ".join(passage.title.split()))


def _repeated(passage: Passage) -> InputError:
    return RepeatedIdError(passage.id, f"the id {passage.id} occurs again")
