"""Building an index and adding to it, with its BM25 part, its dense part, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from typedrag.errors import InputError
from typedrag.files.locks import check_free
from typedrag.records import Passage
from typedrag.retrieval.encoder import Encoder
from typedrag.retrieval.index.approximate import check_factory
from typedrag.retrieval.index.contexts import reader_of
from typedrag.retrieval.index.dense_index import append_dense, build_dense
from typedrag.retrieval.index.dense_manifest import DenseManifest, EncoderSettings, has_dense, read_dense_manifest
from typedrag.retrieval.index.index import (
    K1,
    B,
    Manifest,
    RepeatedIdError,
    append_index,
    build_index,
    check_addition,
    check_folder,
    check_parameters,
    indexed_sources,
    peeked,
    read_manifest,
)
from typedrag.retrieval.index.rows import FieldMap
from typedrag.retrieval.index.sources import Placed, places_of, read_placed
from typedrag.retrieval.index.workshop import BM25_PARTS, MANIFEST, PARTS, begun, check_begun, settle, workshop
from typedrag.retrieval.opening import has_bm25
from typedrag.retrieval.search.bm25 import BM25Retriever

Built = Manifest | DenseManifest
Stage = Callable[[str], AbstractContextManager[Callable[[int], object]]]
"""Shows the progress of a part: takes the name of what is counted; its context yields a function of the number done."""


def build_parts(
    sources: Sequence[Path],
    out: Path,
    stage: Stage,
    *,
    fields: FieldMap | None = None,
    k1: float | None = None,
    b: float | None = None,
    language: str | None = None,
    bm25: bool = True,
    encoder: Encoder | None = None,
    approximate: str | None = None,
    force: bool = False,
    resume: bool = False,
    skip_bad: bool = False,
    contexts: bool = False,
) -> list[Built]:
    """Build an index of files and folders; see also `build_index`.

    Args:
        sources: See `read_passages`. None are needed to embed the passages of a finished index.
        out: Folder of the index.
        stage: Shows the progress of each part.
        fields: The names of the fields of JSONL and TSV rows.
        bm25: If True, the index gets a BM25 part.
        encoder: Makes the dense part; by default there is none.
        approximate: Of the dense part; see `build_dense`.
        force: Replace an index that is there.
        resume: Continue a killed build; one that is finished stays as it is.
        skip_bad: Leave out files and rows that cannot be used, with a warning each.
        contexts: The sources are files of questions, whose contexts are the passages; see `read_contexts`.

    Returns:
        The manifests of the parts that were built.

    Raises:
        InputError: If there is an index already, no part is asked for, a passage does not fit, or a BM25 part that is
            finished has other sources or settings.
        RetrievalError: If Lucene or the encoder fails.
    """
    if encoder is None and not bm25:
        raise InputError("an index needs a part to be searched by", "Name a model: --dense MODEL")
    if not sources and not (encoder and bm25 and has_bm25(out)):
        raise InputError("no source is named", "Name files or folders to index")
    if approximate is not None and encoder is None:
        raise InputError("only a dense part has an approximate index", "Name a model: --dense MODEL")
    if approximate and encoder:
        check_factory(approximate, EncoderSettings.of(encoder).dimensions)
    named = {"k1": k1, "b": b, "language": language}
    k1, b = K1 if k1 is None else k1, B if b is None else b
    check_parameters(k1, b)
    names, manifests = [str(s) for s in sources], list[Built]()
    read = reader_of(sources, fields, contexts=contexts, skip_bad=skip_bad)
    settle(out)
    finished = is_served(out) if bm25 else has_dense(out) and not has_bm25(out)
    # there is nothing to index: the passages are only to be embedded, or all is done
    there = finished and (not sources or (resume and not begun(out)))
    keep: tuple[str, ...] = ()
    if there and not (sources and force):
        check_free(out)
        keep, resume = (BM25_PARTS if force else PARTS), resume or not (sources or force)
        check_begun(out, "building", resume=resume, force=force)
    else:
        check_folder(out, force=force, resume=resume)
    passages = peeked(_passages(read), names) if not (keep and bm25) else iter(())
    with workshop(out, "building", keep=keep, resume=resume, force=force) as folder:
        finished = (folder / MANIFEST).is_file()
        if bm25 and not finished and not sources:
            raise InputError(f"a build of index {out} was begun and not finished", "Name its sources, and --resume")
        if not bm25 and has_bm25(folder):
            raise InputError(f"the build of index {out} that was begun has a BM25 part", "Continue it as it was begun")
        if bm25 and finished:
            held = read_manifest(folder)
            _check_same(held, out, names, named)
            if encoder is None:
                return [held]
        elif bm25:
            with stage("passages") as on_progress, places_named(read):
                manifests.append(
                    build_index(
                        passages, folder, sources=names, k1=k1, b=b, language=language, resume=resume,
                        on_progress=on_progress,
                    )
                )  # fmt: skip
        if encoder is not None and bm25:
            manifests.append(_embed_all(folder, encoder, stage, approximate=approximate))
        elif encoder is not None:
            with stage("passages embedded") as on_progress, places_named(read):
                manifests.append(
                    build_dense(
                        passages, folder, encoder, sources=names, approximate=approximate, on_progress=on_progress
                    )
                )
    return manifests


def _check_same(held: Manifest, out: Path, sources: Sequence[str], settings: Mapping[str, object]) -> None:
    """Refuse other sources and settings than those of a BM25 part that is not built again."""
    others = [f"{name} {getattr(held, name)}" for name in settings if settings[name] not in (None, getattr(held, name))]
    if sources and set(_places(sources)) != set(_places(held.sources)):
        others.insert(0, f"the sources {', '.join(held.sources)}")
    if others:
        raise InputError(
            f"the BM25 part of index {out} is finished, with {' and '.join(others)}",
            "Name the same; sources are added by typedrag index append, and --force builds anew",
        )


def append_parts(
    sources: Sequence[Path],
    out: Path,
    stage: Stage,
    *,
    fields: FieldMap | None = None,
    resume: bool = False,
    skip_bad: bool = False,
    force: bool = False,
) -> list[Built]:
    """Add files and folders to each part that an index has; until then all parts are searched as before.

    The arguments are those of `build_parts`; `force` gives up a killed addition.

    Raises:
        InputError: If a passage does not fit or is there already, or another process is at work on the index.
        RetrievalError: If there is no finished index, or Lucene or the encoder fails.
    """
    settle(out)
    names, manifests = [str(s) for s in sources], list[Built]()
    dense = read_dense_manifest(out) if has_dense(out) else None
    encoder = dense.encoder.encoder() if dense else None
    indexed = indexed_sources(out) or (dense.sources if dense else ())
    if resume and begun(out) is None and _places(names) == _places(indexed[-len(names) :]):  # it was finished
        return [*([read_manifest(out)] if has_bm25(out) else []), *([dense] if dense else [])]
    read = partial(read_placed, sources, fields, skip_bad=skip_bad, indexed=indexed)
    if not has_bm25(out) and encoder:
        with stage("passages embedded") as on_progress, places_named(read):
            return [
                append_dense(
                    _passages(read), out, encoder, sources=names, resume=resume, force=force, on_progress=on_progress
                )
            ]
    check_addition(out, resume=resume, force=force)
    passages = peeked(_passages(read), names)
    with workshop(out, "adding", keep=PARTS, resume=resume, force=force) as folder:
        # where only the dense part is behind, BM25's was already added to before the process was killed
        behind = dense and resume and is_served(folder) and read_manifest(folder).fingerprint != dense.fingerprint
        if not behind:
            with stage("passages") as on_progress, places_named(read):
                manifests.append(append_index(passages, folder, sources=names, on_progress=on_progress))
        if encoder:
            manifests.append(_embed_all(folder, encoder, stage, resume=resume))
    return manifests


def _places(sources: Sequence[str]) -> list[Path]:
    return [Path(s).resolve() for s in sources]


def _passages(read: Callable[[], Iterator[Placed]]) -> Iterator[Passage]:
    return (placed.passage for placed in read())


@contextmanager
def places_named(read: Callable[[], Iterator[Placed]]) -> Iterator[None]:
    """Name the file and line of passages with the same id: looked up only then, as an index does not hold them."""
    try:
        yield
    except RepeatedIdError as error:
        places = places_of(error.passage_id, read())
        raise RepeatedIdError(error.passage_id, f"{error.problem}: {' and '.join(places)}") from error


def is_served(index: Path) -> bool:
    """True if an index has a finished BM25 part."""
    return (index / MANIFEST).is_file() and has_bm25(index)


def _embed_all(
    out: Path, encoder: Encoder, stage: Stage, *, approximate: str | None = None, resume: bool = True
) -> DenseManifest:
    """Embed the passages that only Lucene holds so far, so that both parts hold the same ones."""
    bm25 = BM25Retriever(out)
    with stage("passages embedded") as on_progress:
        return build_dense(
            bm25.passages(),
            out,
            encoder,
            sources=bm25.manifest.sources,
            fingerprint=bm25.manifest.fingerprint,
            approximate=approximate,
            resume=resume,
            on_progress=on_progress,
        )
