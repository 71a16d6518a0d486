"""The dense part of an index: the embeddings of its passages, in the folder `dense/` of a generation.

It holds `embeddings.f32`, a row of float32 for each passage; `passages.jsonl`, their ids, titles and texts in the same
order; and `manifest.json`, which says how many rows count and is written last. Rows are only ever added: the next
process finds the rows of a killed one, and generations share the files. (FAISS's own file of a flat index holds the
same numbers, but can only be written whole.)

An approximate index, for more embeddings than memory holds, is a file of FAISS beside them.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from typedrag.core.errors import InputError, RetrievalError, first_line, path_error
from typedrag.core.extras import require
from typedrag.core.records import Passage
from typedrag.files.text_files import write_text
from typedrag.lms.models import MODELS
from typedrag.retrieval.encoder import NAMED, Embeddings, Encoder, open_encoder
from typedrag.retrieval.index.generations import FORMAT, MANIFEST, open_current, read_manifest_file
from typedrag.retrieval.index.passages import batches

logger = logging.getLogger(__name__)

DENSE = "dense"
EMBEDDINGS, PASSAGES, APPROXIMATE = "embeddings.f32", "passages.jsonl", "approximate.faiss"
AUTO = "auto"
_BUILD = "typedrag index build … --out DIR --dense MODEL"
_CLOSED = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())
_ROWS = 512  # passages that are embedded at once, and lost if the process is killed meanwhile
_SAME = 0.99
"""The least cosine between a model's embedding of a passage and the stored one: other processors and batches
change only the last digits, another model changes everything."""
_FEW = 100_000  # passages that are searched exactly by `auto`: that takes a few milliseconds
_TRAINING_ROWS = 39  # a list: what FAISS wants at least
_FAISS_ROWS = 50_000


class EncoderSettings(BaseModel):
    """The settings that embeddings depend on."""

    model_config = _CLOSED

    model: str
    """Its name as given: one that `typedrag models` knows, a folder, a name on the hub, or an API's with `api:`."""
    dimensions: int
    """The length of an embedding."""
    query_prompt: str
    """Put before each query."""
    passage_prompt: str
    """Put before each passage."""
    normal_form: str = ""
    """The form of texts before they are embedded; see `bm25_part.Manifest`."""
    normalised: bool
    """True if embeddings have length 1, so that their inner product is their cosine."""

    @classmethod
    def of(cls, encoder: Encoder) -> EncoderSettings:
        return cls(
            model=encoder.name,
            dimensions=encoder.encode_queries(["?"]).shape[1],
            query_prompt=encoder.query_prompt,
            passage_prompt=encoder.passage_prompt,
            normal_form=encoder.normal_form,
            normalised=encoder.normalised,
        )

    def encoder(self, model: str | None = None) -> Encoder:
        """The encoder with these settings.

        An index may be a stranger's: a model that does not come with typedrag is fetched, or asked if an API, only
        if the user names it too, here or by `TYPEDRAG_ENCODER`.
        """
        if self.model not in MODELS:
            model = model or os.environ.get(NAMED)
        encoder = open_encoder(
            model or self.model, query_prompt=self.query_prompt, passage_prompt=self.passage_prompt, fetch=bool(model)
        )
        encoder.normal_form = self.normal_form
        return encoder


class DenseManifest(BaseModel):
    """The contents of a dense part, and how it was built."""

    model_config = _CLOSED

    format: int = FORMAT
    """Raised with each change that an older typedrag cannot read."""
    sources: tuple[str, ...]
    """The files and folders that it was built from, as they were named."""
    fingerprint: str
    """The fingerprint of its passages: the same as that of its index, see `bm25_part.Manifest`."""
    passages: int
    """The number of passages, which is that of the rows that count."""
    encoder: EncoderSettings
    """The settings of the encoder that embedded them."""
    approximate: str = ""
    """FAISS's factory string of the approximate index; empty where all passages are compared."""
    built_at: str
    """Time of the end of the build, UTC."""
    seconds: float
    """Wall time of the build, or of its last part if it was continued."""
    versions: dict[str, str]
    """The versions of typedrag, sentence-transformers, torch and FAISS."""


def read_dense_manifest(index: Path) -> DenseManifest:
    return open_current(index, read_generation_dense)


def read_generation_dense(folder: Path) -> DenseManifest:
    if not (folder / DENSE / MANIFEST).is_file():
        raise RetrievalError(f"index {folder.parent} has no dense part", f"Build it: {_BUILD}")
    what, hint = f"the dense part of {folder.parent}", f"Build it again: {_BUILD} --force"
    return read_manifest_file(folder / DENSE / MANIFEST, DenseManifest, what, hint)


def write_dense(
    passages: Iterable[Passage],
    folder: Path,
    encoder: Encoder,
    *,
    sources: Sequence[str],
    fingerprint: Callable[[], str],
    approximate: str = "",
    on_progress: Callable[[int], object] = lambda rows: None,
) -> DenseManifest:
    """Embed all passages of a part, with unique ids, in the folder of a generation, in bounded memory.

    Those that it holds already are not embedded again. In the end `fingerprint` is asked for their fingerprint.
    """
    started, settings = time.monotonic(), EncoderSettings.of(encoder)
    part, index, done, cut = folder / DENSE, folder.parent, 0, 0
    try:
        part.mkdir(exist_ok=True)
        for name in (EMBEDDINGS, PASSAGES):
            (part / name).touch()
        rows = (part / EMBEDDINGS).stat().st_size // (4 * settings.dimensions)
        keep_rows(folder, min(len(line_ends(part / PASSAGES)), rows), settings.dimensions)  # of a killed process
        held = {p.id: hash(p) for p in stored_passages(folder)}
    except OSError as error:
        raise path_error(index, error) from error
    if held:
        check_encoder(encoder, folder, settings)
    for batch in batches(passages, _ROWS):
        stored = [Passage(p.id, p.text, " ".join(p.title.split())) for p in batch]  # as Lucene returns them
        for passage in stored:
            if held.get(passage.id, hash(passage)) != hash(passage):
                raise InputError(
                    f"passage {passage.id} of {index} has changed since it was embedded", "Build again with --force"
                )
        if new := [passage for passage in stored if passage.id not in held]:
            _add_rows(part, new, encoder)
            cut += encoder.count_cut(new)
            held.update({p.id: hash(p) for p in new})
        done += len(batch)
        on_progress(done)
    if cut:
        logger.warning(
            "%s passages are longer than %s reads: it finds them by their beginnings alone. Split them, or search by "
            "hybrid",
            f"{cut:,}",
            encoder.name,
        )
    if len(held) != done:
        raise InputError(
            f"the dense part of {index} holds {len(held)} passages, {len(held) - done} of which are in no source",
            "Build it again with --force",
        )
    for name in (EMBEDDINGS, PASSAGES):
        with (part / name).open("rb") as file:
            os.fsync(file.fileno())
    factory = faiss_factory(approximate, done, settings.dimensions)
    if factory:
        write_approximate(part, read_embeddings(folder, done, settings.dimensions), factory)
    else:
        (part / APPROXIMATE).unlink(missing_ok=True)
    manifest = DenseManifest(
        approximate=factory,
        sources=tuple(sources),
        fingerprint=fingerprint(),
        passages=done,
        encoder=settings,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - started, 3),
        versions={p: version(p) for p in ("typedrag", "sentence-transformers", "torch", "faiss-cpu")},
    )
    write_text(part / MANIFEST, manifest.model_dump_json(indent=1))
    return manifest


def _add_rows(part: Path, passages: Sequence[Passage], encoder: Encoder) -> None:
    embeddings = encoder.encode_passages(passages)
    lines = (json.dumps({"id": p.id, "title": p.title, "text": p.text}, ensure_ascii=False) for p in passages)
    try:
        with (part / EMBEDDINGS).open("ab") as file:
            embeddings.tofile(file)
        with (part / PASSAGES).open("ab") as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise RetrievalError(f"{part} cannot be written to: {error}", "Make room, and --resume") from error


def keep_rows(folder: Path, rows: int, dimensions: int) -> None:
    """Remove all rows of a part but the first."""
    bounds = line_ends(folder / DENSE / PASSAGES)
    os.truncate(folder / DENSE / EMBEDDINGS, 4 * dimensions * rows)
    os.truncate(folder / DENSE / PASSAGES, bounds[rows - 1] if rows else 0)


def check_encoder(encoder: Encoder, folder: Path, built_with: EncoderSettings) -> None:
    """Refuse an encoder whose embedding of a dense part's first passage differs from the stored one."""
    [row] = encoder.encode_passages([next(stored_passages(folder))])
    [stored] = read_embeddings(folder, 1, built_with.dimensions)
    if not same_embedding(row, stored):
        raise InputError(
            f"the dense part of {folder.parent} was built with {built_with.model}, whose embeddings are not those of "
            f"{encoder.name} here",
            "Use the same model, or build again with --force",
        )


def same_embedding(row: Embeddings, stored: Embeddings) -> bool:
    """True if two embeddings of a text, of one dimension each, are the same model's."""
    lengths = float(np.linalg.norm(row) * np.linalg.norm(stored))
    return row.shape == stored.shape and float(row @ stored) >= _SAME * lengths


def read_embeddings(folder: Path, rows: int, dimensions: int) -> Embeddings:
    """The first rows of a generation's dense part, read from disk as they are used. [rows, dimensions]"""
    return np.memmap(folder / DENSE / EMBEDDINGS, dtype=np.float32, mode="r", shape=(rows, dimensions))


def stored_passages(folder: Path) -> Iterator[Passage]:
    with (folder / DENSE / PASSAGES).open("rb") as lines:
        yield from map(parse_passage, lines)


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
    return Passage(**json.loads(line))


def faiss_factory(spec: str, rows: int, dimensions: int) -> str:
    """The factory string of FAISS that a spec stands for; empty for an exact search."""
    if spec != AUTO:
        return spec
    if rows < _FEW:
        return ""
    codes = f"PQ{dimensions // 8}" if dimensions % 8 == 0 else "SQ8"
    return f"IVF{4 * math.isqrt(rows)},{codes}"


def check_factory(spec: str, dimensions: int) -> None:
    if spec in ("", AUTO):
        return
    try:
        _empty_index(spec, dimensions)
    except RuntimeError as error:
        raise InputError(
            f"FAISS makes no index of '{spec}': {first_line(error)}", "Write auto, or one like IVF4096,PQ48 or HNSW32"
        ) from error


def write_approximate(folder: Path, embeddings: Embeddings, factory: str) -> None:
    """Write the approximate index of embeddings, which are read in parts."""
    import faiss

    rows, dimensions = embeddings.shape
    index = _empty_index(factory, dimensions)
    try:
        if not index.is_trained:
            lists = faiss.try_extract_index_ivf(index)
            step = max(1, rows // (_TRAINING_ROWS * max(lists.nlist if lists else 0, 256)))
            index.train(np.ascontiguousarray(embeddings[::step]))
        for start in range(0, rows, _FAISS_ROWS):
            index.add(np.ascontiguousarray(embeddings[start : start + _FAISS_ROWS]))
    except RuntimeError as error:
        raise InputError(
            f"FAISS cannot index {rows:,} embeddings as {factory}: {first_line(error)}", "Write auto, or fewer lists"
        ) from error
    part = folder / f"{APPROXIMATE}.part"
    faiss.write_index(index, str(part))
    part.replace(folder / APPROXIMATE)


def _empty_index(factory: str, dimensions: int) -> Any:
    require("faiss")
    import faiss

    return faiss.index_factory(dimensions, factory, faiss.METRIC_INNER_PRODUCT)
