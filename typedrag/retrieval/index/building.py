"""Building an index and adding to it: with a BM25 part, a dense part, or both."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.files.text_files import shown_name
from typedrag.retrieval.encoder import Encoder
from typedrag.retrieval.index import bm25_part, dense_part, generations
from typedrag.retrieval.index.bm25_part import K1, B, Manifest
from typedrag.retrieval.index.dense_part import DenseManifest, EncoderSettings
from typedrag.retrieval.index.generations import MANIFEST, open_current
from typedrag.retrieval.index.lucene import check_language
from typedrag.retrieval.index.passages import Fingerprint, Stage, check_ids, repeated_error, require_passages
from typedrag.retrieval.search.bm25 import generation_passages
from typedrag.runs.folder import Result, RunFolder

How = Literal["build", "append", "keep"]


class Built(NamedTuple):
    """The parts of an index: the manifest of each, None where there is no such part."""

    bm25: Manifest | None
    dense: DenseManifest | None


def silent_stage(unit: str) -> AbstractContextManager[Callable[[int], object]]:
    return nullcontext(lambda rows: None)


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
    stage: Stage = silent_stage,
) -> Built:
    """Build an index of passages, streaming them in bounded memory.

    An existing index can be searched until the new one takes its place. Embeddings of an interrupted build are
    kept for `resume`; Lucene's part is built again.

    Args:
        passages: Passages in a fixed order, with unique ids.
        out: Folder of the index.
        sources: Their origin, for the manifest.
        k1: BM25's default for searches, as `b`.
        language: ISO 639 code of the passages' language; by default that of most of the first passages.
        bm25: Whether the index gets a BM25 part.
        encoder: Makes the dense part; by default there is none.
        approximate: FAISS's factory string of an approximate index, such as `IVF4096,PQ48`, or `auto`, by the number
            of passages; by default there is none.
        force: Replace an index that is there.
        resume: Continue an interrupted build; one that is finished stays as it is.
        threads: Threads of Lucene's writer; all processors by default.
        stage: Shows the progress of each part.
    """
    if encoder is None and not bm25:
        raise InputError("an index needs a part to be searched by", "Name a model: --dense MODEL")
    if approximate is not None and encoder is None:
        raise InputError("only a dense part has an approximate index", "Name a model: --dense MODEL")
    bm25_part.check_parameters(k1, b)
    if language:
        check_language(language)
    plan = _Plan(
        kind="index build",
        sources=tuple(map(shown_name, sources)),
        bm25="build" if bm25 else None,
        settings={"k1": k1, "b": b, "language": language} if bm25 else None,
        dense="build" if encoder else None,
        encoder=encoder,
        approximate=approximate or "",
    )
    return plan.make(out, require_passages(passages, sources), stage, threads, resume=resume, force=force)


def append_index(
    passages: Iterable[Passage],
    out: Path,
    *,
    sources: Sequence[str],
    resume: bool = False,
    force: bool = False,
    threads: int | None = None,
    stage: Stage = silent_stage,
) -> Built:
    """Add passages to each part that an index has, streaming them in bounded memory.

    The index then answers like one built from all passages; until all are added it answers as before.

    The arguments are those of `build_index`: passages whose ids are new; `force` gives up an interrupted addition.
    """
    base = open_current(out, read_parts)
    plan = _Plan(
        kind="index append",
        sources=tuple(map(shown_name, sources)),
        bm25="append" if base.bm25 else None,
        dense="append" if base.dense else None,
        encoder=base.dense.encoder.encoder() if base.dense else None,
        approximate=base.dense.approximate if base.dense else "",
    )
    return plan.make(out, require_passages(passages, sources), stage, threads, resume=resume, force=force)


def embed_index(
    out: Path, encoder: Encoder, *, approximate: str | None = None, force: bool = False, stage: Stage = silent_stage
) -> Built:
    """Embed the passages of an index. What is embedded already, also by an interrupted call, is kept unless forced.

    `approximate` is that of `build_index`; by default it stays as it is.
    """
    base = open_current(out, read_parts)
    held = None if force else base.dense
    if held and approximate is None:
        approximate = held.approximate
    plan = _Plan(
        kind="index embed",
        sources=(),
        bm25="keep" if base.bm25 else None,
        dense="append" if held else "build",
        encoder=encoder,
        approximate=approximate or "",
    )
    return plan.make(out, iter(()), stage, None, resume=not force, force=force)


def read_parts(folder: Path) -> Built:
    return Built(
        bm25_part.read_bm25_manifest(folder) if (folder / MANIFEST).exists() else None,
        dense_part.read_generation_dense(folder) if (folder / dense_part.DENSE / MANIFEST).exists() else None,
    )


@dataclass(frozen=True)
class _Plan:
    """A plan of the next generation of an index: which parts it gets, and from where."""

    kind: generations.Kind
    sources: tuple[str, ...]  # of the passages that are read
    bm25: How | None
    """Whether the BM25 part is built from these, gets these, or stays as it is; None if there is to be none."""
    dense: How | None  # likewise of the dense part; it embeds the passages of the BM25 part if there is one
    encoder: Encoder | None
    approximate: str  # the factory of the dense part's approximate index; empty if there is to be none
    settings: dict[str, Any] | None = None  # of a BM25 part that is built

    def make(
        self, index: Path, passages: Iterator[Passage], stage: Stage, threads: int | None, *, resume: bool, force: bool
    ) -> Built:
        encoder = EncoderSettings.of(self.encoder) if self.encoder else None
        if encoder:
            dense_part.check_factory(self.approximate, encoder.dimensions)
        identity = {
            "sources": [str(Path(source).resolve()) for source in self.sources],
            "bm25": self.settings,
            "dense": encoder.model_dump(mode="json") if encoder else None,
            "approximate": self.approximate,
        }

        def make(run: RunFolder) -> None:
            base = generations.current_generation(index)
            begun = {result.item for result in run.store.read().results}
            if not begun and base:
                self._link_parts(base, run.path, encoder)
            if self.bm25 in ("build", "append") and "bm25" not in begun:
                with stage("passages") as on_progress:
                    bm25_part.write_bm25(
                        passages,
                        run.path,
                        sources=self.sources,
                        base=bm25_part.read_bm25_manifest(base) if base and self.bm25 == "append" else None,
                        threads=threads,
                        on_progress=on_progress,
                        **(self.settings or {"k1": K1, "b": B, "language": None}),
                    )
                run.store.add(Result("bm25", "index"))
            if self.encoder:
                self._embed(run, base, passages, stage, self.encoder, begun)

        generations.make_generation(index, self.kind, identity, make, resume=resume, force=force)
        return open_current(index, read_parts)

    def _link_parts(self, base: Path, folder: Path, encoder: EncoderSettings | None) -> None:
        """Begin a generation with those parts of the one before it that stay or are added to."""
        if self.bm25 in ("append", "keep"):
            generations.link_files(base / bm25_part.LUCENE, folder / bm25_part.LUCENE)
        if self.bm25 == "keep":
            shutil.copy2(base / MANIFEST, folder / MANIFEST)
        if self.dense == "append" and encoder:
            held = dense_part.read_generation_dense(base)
            if held.encoder.model_copy(update={"model": encoder.model}) != encoder:
                before, now = (s.model_dump(exclude={"model"}) for s in (held.encoder, encoder))
                others = [f"{name} {before[name]!r}, now {now[name]!r}" for name in now if before[name] != now[name]]
                raise InputError(
                    f"the dense part of {base.parent} was built with {held.encoder.model} and other settings: "
                    f"{', '.join(others)}",
                    "Use the same model, or build again with --force",
                )
            generations.link_files(base / dense_part.DENSE, folder / dense_part.DENSE)
            (folder / dense_part.DENSE / MANIFEST).unlink()
            dense_part.keep_rows(folder, held.passages, encoder.dimensions)

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
        fingerprint = digest.hexdigest
        if self.bm25:
            bm25 = bm25_part.read_bm25_manifest(run.path)
            sources, fingerprint, passages = bm25.sources, lambda: bm25.fingerprint, generation_passages(run.path)
        elif base and self.kind in ("index append", "index embed"):
            before, new = dense_part.read_generation_dense(base), passages

            def stored() -> Iterator[Passage]:
                return islice(dense_part.stored_passages(base), before.passages)

            if self.kind == "index embed":
                passages, sources, fingerprint = stored(), before.sources, lambda: before.fingerprint
            else:
                digest, there = Fingerprint(before.fingerprint), {p.id for p in stored()}

                def check_new() -> Iterator[Passage]:
                    for passage in check_ids(new, digest):
                        if passage.id in there:
                            raise repeated_error([passage.id])
                        yield passage

                passages, sources = chain(stored(), check_new()), (*before.sources, *sources)
                fingerprint = digest.hexdigest
        else:
            passages = check_ids(passages, digest)
        with stage("passages embedded") as on_progress:

            def show(rows: int) -> None:
                if "dense" not in begun:  # from now on there are embeddings that are worth continuing from
                    begun.add("dense")
                    run.store.add(Result("dense", "embed"))
                on_progress(rows)

            dense_part.write_dense(
                passages,
                run.path,
                encoder,
                sources=sources,
                fingerprint=fingerprint,
                approximate=self.approximate,
                on_progress=show,
            )
