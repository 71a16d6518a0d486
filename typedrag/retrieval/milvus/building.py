"""Building an index in Milvus, and bringing it up to date with its sources."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from typedrag.errors import InputError
from typedrag.retrieval.encoder import Encoder
from typedrag.retrieval.index.analyzers import check_language
from typedrag.retrieval.index.bm25_part import K1, B, check_parameters
from typedrag.retrieval.index.contexts import reader_of
from typedrag.retrieval.index.dense_part import EncoderSettings
from typedrag.retrieval.index.passages import Fingerprint, IdHashes, Stage, batches, peeked, places_named
from typedrag.retrieval.index.rows import FieldMap
from typedrag.retrieval.index.sources import Placed
from typedrag.retrieval.milvus.address import MilvusAddress
from typedrag.retrieval.milvus.collection import DENSE, FIELDS, Collection, CollectionManifest, check_embeddings, row_of
from typedrag.texts.language import ENGLISH, language_of_most

_ROWS = 512
"""Passages that are sent at once, and lost if the process is killed meanwhile."""
_LANGUAGE_ROWS = 200


def build_collection(
    sources: Sequence[Path],
    address: MilvusAddress,
    stage: Stage,
    *,
    fields: FieldMap | None = None,
    metadata: Sequence[str] = (),
    k1: float = K1,
    b: float = B,
    language: str | None = None,
    bm25: bool = True,
    encoder: Encoder | None = None,
    force: bool = False,
    resume: bool = False,
    skip_bad: bool = False,
    contexts: bool = False,
) -> CollectionManifest:
    """Build an index of files and folders in a collection of Milvus, in bounded memory.

    A build that is resumed sends, and embeds, only the passages that the collection does not hold as they are. So a
    killed build is continued, and a finished index gets the passages that its sources have gained.

    Args:
        sources: See `read_passages`.
        address: The collection; how it is searched does not matter.
        stage: Shows the progress.
        fields: The names of the fields of JSONL and TSV rows.
        metadata: The names of further fields of rows, by which passages can be filtered.
        k1: BM25's term frequency saturation.
        b: BM25's length normalisation.
        language: ISO 639 code of the passages' language; by default that of most of the first passages.
        bm25: If True, the index gets a BM25 part.
        encoder: Makes the dense part; by default there is none.
        force: Replace an index that is there; it is deleted first.
        resume: Continue a killed build, or bring an index up to date, with the settings that it was begun with.
        skip_bad: Leave out files and rows that cannot be used, with a warning each.
        contexts: The sources are files of questions, whose contexts are the passages; see `read_contexts`.

    Raises:
        InputError: If there is an index already, or something else, in the collection; no part is asked for; a
            passage does not fit; or a resumed build had other settings, or passages that are in no source now.
        RetrievalError: If Milvus or the encoder fails.
    """
    started = time.monotonic()
    if encoder is None and not bm25:
        raise InputError("an index needs a part to be searched by", "Name a model: --dense MODEL")
    check_parameters(k1, b)
    if language:
        check_language(language)
    _check_metadata(metadata)
    names = [str(source) for source in sources]
    read = reader_of(sources, fields, contexts=contexts, skip_bad=skip_bad, metadata=metadata)
    passages = peeked(read(), names)
    collection = Collection(address)
    held = _begin(collection, force=force, resume=resume)
    first = next(parts := batches(passages, _ROWS))
    if held is None:
        step = max(1, len(first) // _LANGUAGE_ROWS)
        read_as = language or (language_of_most(p.passage.text for p in first[::step]) if bm25 else ENGLISH)
    else:
        read_as = language or held.language
    manifest = CollectionManifest(
        sources=tuple(names),
        bm25=bm25,
        language=read_as,
        k1=k1,
        b=b,
        encoder=EncoderSettings.of(encoder) if encoder else None,
        metadata=tuple(metadata),
    )
    if held is not None and held.settings != manifest.settings:
        raise InputError(
            f"{address.place} was begun with other settings: {_differences(held, manifest)}",
            "Name the same, or build anew with --force",
        )
    if encoder and held is not None and collection.exists():
        check_embeddings(collection, encoder)
    collection.save(manifest)
    collection.create(manifest)
    digest, ids, done = Fingerprint(), IdHashes(), 0
    with stage("passages") as on_progress, places_named(read):
        for part in chain([first], parts):
            ids.add([placed.passage for placed in part], done + 1)
            for placed in part:
                digest.add(placed.passage)
            _write(part, collection, manifest, encoder, fresh=held is None)
            done += len(part)
            on_progress(done)
    collection.flush()
    if (rows := collection.count()) != done:
        raise InputError(f"{address.place} holds {rows:,} passages, its sources {done:,}", "Build it anew with --force")
    finished = manifest.model_copy(
        update={
            "fingerprint": digest.hexdigest(),
            "passages": done,
            "built_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - started, 3),
            "versions": {package: version(package) for package in ("typedrag", "pymilvus")},
        }
    )
    collection.save(finished)
    return finished


def _begin(collection: Collection, *, force: bool, resume: bool) -> CollectionManifest | None:
    """The manifest of what is to be continued; None if the build begins anew."""
    held, place = collection.manifest(), collection.address.place
    if held is None:
        if collection.exists():
            raise InputError(f"{place} holds something that is no index of typedrag", "Name another collection")
        return None
    if force:
        collection.drop()
        return None
    if resume:
        return held
    if held.passages:
        raise InputError(f"index {place} is there already", "Replace it with --force, or bring it up to date: --resume")
    raise InputError(
        f"a build of {place} was begun and not finished", "Continue it with --resume, or begin anew: --force"
    )


def _write(
    part: Sequence[Placed],
    collection: Collection,
    manifest: CollectionManifest,
    encoder: Encoder | None,
    *,
    fresh: bool,
) -> None:
    """Send the passages that the collection does not hold as they are."""
    rows = {placed.passage.id: row_of(placed.passage, manifest.language) | dict(placed.metadata) for placed in part}
    held = {} if fresh else collection.rows(list(rows), manifest.metadata)
    missing = [placed.passage for placed in part if held.get(placed.passage.id) != rows[placed.passage.id]]
    if not missing:
        return
    sent: list[dict[str, Any]] = [rows[passage.id] for passage in missing]
    if encoder:
        embeddings = encoder.encode_passages(missing)
        sent = [row | {DENSE: embedding} for row, embedding in zip(sent, embeddings, strict=True)]
    collection.write(sent)


def _check_metadata(metadata: Sequence[str]) -> None:
    for name in metadata:
        if not name.isidentifier() or name in FIELDS:
            raise InputError(
                f"passages cannot be filtered by a field '{name}'",
                f"Name one of letters, digits and _ that is none of {', '.join(FIELDS)}",
            )


def _differences(held: CollectionManifest, now: CollectionManifest) -> str:
    before, after = held.settings, now.settings
    return ", ".join(f"{name} {before[name]!r}, now {after[name]!r}" for name in before if before[name] != after[name])
