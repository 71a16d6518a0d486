"""Building an index and adding to it: with a BM25 part, a dense part, or both."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.retrieval.encoder import Encoder
from typedrag.retrieval.index.analyzers import check_language
from typedrag.retrieval.index.approximate import check_factory
from typedrag.retrieval.index.bm25_part import (
    K1,
    LUCENE,
    B,
    Manifest,
    check_parameters,
    read_bm25_manifest,
    write_bm25,
)
from typedrag.retrieval.index.dense_part import (
    DENSE,
    DenseManifest,
    EncoderSettings,
    keep_rows,
    read_generation_dense,
    stored_passages,
    write_dense,
)
from typedrag.retrieval.index.generations import (
    MANIFEST,
    Kind,
    current_generation,
    link_files,
    make_generation,
    open_current,
)
from typedrag.retrieval.index.passages import Fingerprint, Stage, repeated_error, require_passages, unique
from typedrag.retrieval.search.bm25 import generation_passages
from typedrag.runs.folder import RunFolder
from typedrag.runs.store import Result

How = Literal["build", "append", "keep"]


class Built(NamedTuple):
    """The parts of an index: the manifest of each, None where there is no such part."""

    bm25: Manifest | None
    dense: DenseManifest | None


def build_index(
    passages: Iterable[Passage],
    out: Path,
    *,
    sources: Sequence[str],
    k1: float = K1,
    b: float = B,
    language: str | None = None,
    bm25: bool = True,
    encoder: Encoder | None = None,
    approximate: str | None = None,
    force: bool = False,
    resume: bool = False,
    threads: int | None = None,
    stage: Stage = lambda unit: nullcontext(lambda rows: None),
) -> Built:
    """Build an index of passages, streaming them in bounded memory.

    An existing index can be searched until the new one takes its place. Embeddings of an interrupted build are
    kept for `resume`; Lucene's part is begun anew.

    Args:
        passages: Passages in a fixed order, with unique ids.
        out: Folder of the index.
        sources: Their origin, for the manifest.
        k1: BM25's default for searches.
        b: BM25's default for searches.
        language: ISO 639 code of the passages' language; by default that of most of the first passages.
        bm25: If True, the index gets a BM25 part.
        encoder: Makes the dense part; by default there is none.
        approximate: FAISS's factory string of an approximate index, such as `IVF4096,PQ48`, or `auto`, by the number
            of passages; by default there is none.
        force: Replace an index that is there.
        resume: Continue an interrupted build; one that is finished stays as it is.
        threads: Threads of Lucene's writer; all processors by default.
        stage: Shows the progress of each part.

    Raises:
        InputError: If there is an index already, no part is asked for, a passage's id occurs twice, there is no
            passage, the build that is resumed has other sources or settings, or a setting is out of range.
        RetrievalError: If Lucene or the encoder fails.
    """
    if encoder is None and not bm25:
        raise InputError("an index needs a part to be searched by", "Name a model: --dense MODEL")
    if approximate is not None and encoder is None:
        raise InputError("only a dense part has an approximate index", "Name a model: --dense MODEL")
    check_parameters(k1, b)
    if language:
        check_language(language)
    plan = _Plan(
        kind="index build",
        sources=tuple(sources),
        bm25="build" if bm25 else None,
        settings={"k1": k1, "b": b, "language": language} if bm25 else None,
        dense="build" if encoder else None,
        encoder=encoder,
        approximate=approximate or "",
    )
    return plan.carry_out(out, require_passages(passages, sources), stage, threads, resume=resume, force=force)


def append_index(
    passages: Iterable[Passage],
    out: Path,
    *,
    sources: Sequence[str],
    resume: bool = False,
    force: bool = False,
    threads: int | None = None,
    stage: Stage = lambda unit: nullcontext(lambda rows: None),
) -> Built:
    """Add passages to each part that an index has, streaming them in bounded memory.

    The index then answers like one built from all passages; until all are added it answers as before.

    The arguments are those of `build_index`: passages whose ids are new; `force` gives up an interrupted addition.

    Raises:
        InputError: If a passage's id is in the index or occurs twice, or there is no passage.
        RetrievalError: If there is no index, or Lucene or the encoder fails.
    """
    base = open_current(out, read_parts)
    plan = _Plan(
        kind="index append",
        sources=tuple(sources),
        bm25="append" if base.bm25 else None,
        dense="append" if base.dense else None,
        encoder=base.dense.encoder.encoder() if base.dense else None,
        approximate=base.dense.approximate if base.dense else "",
    )
    return plan.carry_out(out, require_passages(passages, sources), stage, threads, resume=resume, force=force)


def embed_index(
    out: Path,
    encoder: Encoder,
    *,
    approximate: str | None = None,
    force: bool = False,
    stage: Stage = lambda unit: nullcontext(lambda rows: None),
) -> Built:
    """Embed the passages of an index's BM25 part. What is embedded already, also by an interrupted call, is kept.

    Args:
        out: Folder of the index.
        encoder: Embeds them.
        approximate: See `build_index`; by default as before.
        force: Embed all of them anew.
        stage: Shows the progress.

    Raises:
        InputError: If another model embedded them before.
        RetrievalError: If there is no index with a BM25 part, or the encoder fails.
    """
    base = open_current(out, read_parts)
    held = None if force else base.dense
    if base.bm25 is None:
        open_current(out, read_bm25_manifest)
    if held and approximate is None:
        approximate = held.approximate
    plan = _Plan(
        kind="index embed",
        sources=(),
        bm25="keep",
        dense="append" if held else "build",
        encoder=encoder,
        approximate=approximate or "",
    )
    return plan.carry_out(out, iter(()), stage, None, resume=not force, force=force)


def read_parts(folder: Path) -> Built:
    """The manifests of a generation's parts."""
    return Built(
        read_bm25_manifest(folder) if (folder / MANIFEST).exists() else None,
        read_generation_dense(folder) if (folder / DENSE / MANIFEST).exists() else None,
    )


@dataclass(frozen=True)
class _Plan:
    """A plan of the next generation of an index: which parts it gets, and from where.

    Attributes:
        kind: The kind of work.
        sources: The sources of the passages that are read.
        bm25: Whether the BM25 part is built from these, gets these, or stays as it is; None if there is to be none.
        settings: Of a BM25 part that is built.
        dense: Likewise of the dense part; it embeds the passages of the BM25 part if there is one.
        encoder: Of the dense part.
        approximate: The factory of its approximate index; empty if there is to be none.
    """

    kind: Kind
    sources: tuple[str, ...]
    bm25: How | None
    dense: How | None
    encoder: Encoder | None
    approximate: str
    settings: dict[str, Any] | None = None

    def carry_out(
        self,
        index: Path,
        passages: Iterator[Passage],
        stage: Stage,
        threads: int | None,
        *,
        resume: bool,
        force: bool,
    ) -> Built:
        """Make the generation, unless it is there already; returns the parts of the index."""
        encoder = EncoderSettings.of(self.encoder) if self.encoder else None
        if encoder:
            check_factory(self.approximate, encoder.dimensions)
        identity = {
            "sources": [str(Path(source).resolve()) for source in self.sources],
            "bm25": self.settings,
            "dense": encoder.model_dump(mode="json") if encoder else None,
            "approximate": self.approximate,
        }

        def make(run: RunFolder) -> None:
            base = current_generation(index)
            begun = {result.item for result in run.store.read().results}
            if not begun and base:
                self._begin(base, run.path, encoder)
            if self.bm25 in ("build", "append") and "bm25" not in begun:
                with stage("passages") as on_progress:
                    write_bm25(
                        passages,
                        run.path,
                        sources=self.sources,
                        base=read_bm25_manifest(base) if base and self.bm25 == "append" else None,
                        threads=threads,
                        on_progress=on_progress,
                        **(self.settings or {"k1": K1, "b": B, "language": None}),
                    )
                run.store.add(Result("bm25", "index"))
            if self.encoder:
                self._embed(run, base, passages, stage, self.encoder, begun)

        make_generation(index, self.kind, identity, make, resume=resume, force=force)
        return open_current(index, read_parts)

    def _begin(self, base: Path, folder: Path, encoder: EncoderSettings | None) -> None:
        """Begin a generation with those parts of the one before it that stay or are added to."""
        if self.bm25 in ("append", "keep"):
            link_files(base / LUCENE, folder / LUCENE)
        if self.bm25 == "keep":
            shutil.copy2(base / MANIFEST, folder / MANIFEST)
        if self.dense == "append" and encoder:
            held = read_generation_dense(base)
            if held.encoder.model_copy(update={"model": encoder.model}) != encoder:
                before, now = (s.model_dump(exclude={"model"}) for s in (held.encoder, encoder))
                others = [f"{name} {before[name]!r}, now {now[name]!r}" for name in now if before[name] != now[name]]
                raise InputError(
                    f"the dense part of {base.parent} was built with {held.encoder.model} and other settings: "
                    f"{', '.join(others)}",
                    "Use the same model, or build again with --force",
                )
            link_files(base / DENSE, folder / DENSE)
            (folder / DENSE / MANIFEST).unlink()
            keep_rows(folder, held.passages, encoder.dimensions)

    def _embed(
        self,
        run: RunFolder,
        base: Path | None,
        passages: Iterator[Passage],
        stage: Stage,
        encoder: Encoder,
        begun: set[str],
    ) -> None:
        sources, digest = self.sources, Fingerprint()
        if self.bm25:
            held = read_bm25_manifest(run.path)
            sources, fingerprint = held.sources, lambda: held.fingerprint
            passages = generation_passages(run.path)
        elif base and self.dense == "append":
            before = read_generation_dense(base)
            sources, digest = (*before.sources, *sources), Fingerprint(before.fingerprint)
            there = {p.id for p in islice(stored_passages(base), before.passages)}
            new = _without(there, unique(passages, digest))
            passages, fingerprint = chain(islice(stored_passages(base), before.passages), new), digest.hexdigest
        else:
            passages, fingerprint = unique(passages, digest), digest.hexdigest
        with stage("passages embedded") as on_progress:

            def show(rows: int) -> None:
                if "dense" not in begun:  # from now on there are embeddings that are worth continuing from
                    begun.add("dense")
                    run.store.add(Result("dense", "embed"))
                on_progress(rows)

            write_dense(
                passages,
                run.path,
                encoder,
                sources=sources,
                fingerprint=fingerprint,
                approximate=self.approximate,
                on_progress=show,
            )


def _without(ids: set[str], passages: Iterable[Passage]) -> Iterator[Passage]:
    """The same passages, after a check that none has one of the ids."""
    for passage in passages:
        if passage.id in ids:
            raise repeated_error([passage.id])
        yield passage
