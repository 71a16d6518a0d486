"""The retriever `milvus:SERVER/COLLECTION?search=…&filter=…`, and building its index.

A passage is a row: `id`; `contents`, its title on the first line and then its text; `passage`, the same where the
analyzer reads another text; `dense`, its embedding; and the metadata to filter by, as dynamic fields. Milvus makes
`sparse`, the terms of BM25, out of `contents`. Each build makes a collection, and a row of `typedrag_indexes` names the
finished one, which is replaced at once: not every Milvus has aliases.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel

from typedrag.core.errors import InputError, RetrievalError, first_line
from typedrag.core.extras import require
from typedrag.core.records import Passage
from typedrag.core.redaction import without_keys
from typedrag.core.registry import NoDeepcopy
from typedrag.files.text_files import drop_half_characters
from typedrag.retrieval.encoder import Encoder
from typedrag.retrieval.index.bm25_part import K1, B, check_parameters, contents
from typedrag.retrieval.index.dense_part import EncoderSettings, same_embedding
from typedrag.retrieval.index.lucene import analyzer_name, check_language, split_unspaced
from typedrag.retrieval.index.passages import Fingerprint, IdHashes, Stage, add_places, batches, require_passages
from typedrag.retrieval.index.sources import FieldMap, Placed, source_reader
from typedrag.retrieval.opening import check_retriever, read_options
from typedrag.retrieval.protocols import IndexRetriever
from typedrag.retrieval.search.hybrid import HybridRetriever
from typedrag.text.language import ENGLISH, detect_main_language

T = TypeVar("T")
TOKEN = "MILVUS_TOKEN"  # the environment variable of the server's key: a token, or `USER:PASSWORD`
MAX_PASSAGES = 16_384  # passages that Milvus gives for a query, and that one call asks for: they are about 16 MiB
_MAX_BYTES = 65_535  # bytes of a text in Milvus
_SPARSE, _DENSE, _TEXTS = "sparse", "dense", ["contents", "passage"]
_INDEXES = "typedrag_indexes"
_HOST = r"(?:[\w.-]+|\[[\da-fA-F:]+\])(?::[1-9]\d*)?"
_PLACE = re.compile(rf"milvus:(https?://{_HOST}(?:/\w+)?|(?!\w+://)[^@]+\.db)/([A-Za-z_]\w{{0,199}})", re.ASCII)
_STEMMERS = (
    "arabic danish dutch finnish french german greek hungarian italian norwegian portuguese romanian russian spanish "
    "swedish tamil turkish"
)
_CONNECT_FAILED = 2  # Milvus's code: it closes idle connections, and the next attempt may still meet the closed one
_NOW: dict[str, Any] = {"consistency_level": "Strong", "timeout": 60.0}  # reads what was written a moment ago
_ROWS, _QUERIES = 512, 64  # passages that are sent, and queries that are asked, by one call
_DIGITS = 5  # digits of a score: further ones vary with the rows that are searched together, and would decide ties


class MilvusOptions(BaseModel, extra="forbid", frozen=True):
    """The way to search an index in Milvus."""

    search: str = "auto"
    """As of an index in a folder; no `gold`."""
    filter: str = ""
    """An expression of Milvus over the metadata of passages, such as `year >= 2020`; empty for none."""


class MilvusManifest(BaseModel):
    """The contents of an index in Milvus, and how it was built; see `index.Manifest`."""

    collection: str
    sources: tuple[str, ...]
    fingerprint: str = ""
    passages: int = 0
    bm25: bool
    language: str
    k1: float
    b: float
    encoder: EncoderSettings | None
    metadata: tuple[str, ...]
    built_at: str = ""
    seconds: float = 0.0

    @property
    def settings(self) -> dict[str, Any]:
        return self.model_dump(include={"bm25", "language", "k1", "b", "encoder", "metadata"})


class _Builds(BaseModel):
    """The finished build of an index, the one in progress, and collections that the next build deletes."""

    finished: MilvusManifest | None = None
    building: MilvusManifest | None = None
    replaced: list[str] = []


class MilvusIndex:
    """A connection to an index in Milvus, which need not be there yet. Safe to use from many threads."""

    def __init__(self, spec: str) -> None:
        self.place, self.options = read_options("milvus", spec, MilvusOptions)
        if not (match := _PLACE.fullmatch(self.place)):
            hint = f"Write it like milvus:http://HOST:PORT/COLLECTION; its key belongs into {TOKEN}"
            raise InputError(f"'{without_keys(spec)}' names no collection of Milvus", hint)
        self.server, self.name = match.groups()
        require("pymilvus")
        lite = next((dist.version for dist in distributions(name="milvus-lite")), "none")
        if "://" not in self.server and not lite.startswith("2."):
            problem = f"a file of Milvus needs milvus-lite 2, which has Milvus's own engine; installed is {lite}"
            raise RetrievalError(problem, "pip install 'milvus-lite>=2.5.1,<3' 'setuptools<82', or name a server")
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # its errors are raised, too
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # likewise
        from pymilvus import MilvusClient

        token = os.environ.get(TOKEN, "")
        self.client: Any = self.ask(lambda: MilvusClient(self.server, token=token, timeout=10.0), (0.25, 0.5))

    def ask(self, call: Callable[[], T], waits: Sequence[float] = (0.25, 0.5, 1, 2, 4)) -> T:
        """The result of a call of Milvus's client, whose errors become a `RetrievalError`."""
        from grpc import RpcError
        from pymilvus.exceptions import MilvusException

        try:
            return call()
        except (MilvusException, RpcError) as error:
            if waits and getattr(error, "code", None) == _CONNECT_FAILED:
                time.sleep(waits[0])
                return self.ask(call, waits[1:])
            reason = without_keys(getattr(error, "message", "") or first_line(error))
            hint = f"Is it running, and is its key in {TOKEN} if it wants one?"
            raise RetrievalError(f"Milvus at {self.server} does not answer: {reason}", hint) from error

    def builds(self) -> _Builds:
        if not self.ask(lambda: self.client.has_collection(_INDEXES)):
            return _Builds()
        rows = self.ask(lambda: self.client.get(_INDEXES, ids=[self.name], output_fields=["builds"], **_NOW))
        return _Builds.model_validate_json(rows[0]["builds"]) if rows else _Builds()

    def manifest(self) -> MilvusManifest:
        builds, build = self.builds(), f"Build it: typedrag index build SOURCE… --to {self.place}"
        if builds.finished is None and builds.building:
            raise RetrievalError(f"the build of {self.place} did not finish", f"{build} --resume")
        if builds.finished is None:
            raise RetrievalError(f"{self.place} is no index", build)
        return builds.finished

    def save(self, builds: _Builds, drop: Sequence[str] = ()) -> None:
        """Replace the builds of the index, then delete these collections."""
        named = {"primary_field_name": "name", "id_type": "string", "max_length": 255, "metric_type": "L2"}
        self.ask(lambda: self.client.create_collection(_INDEXES, dimension=2, **named))  # Milvus wants a vector
        row = {"name": self.name, "builds": builds.model_dump_json(), "vector": [0.0, 0.0]}
        self.ask(lambda: self.client.upsert(_INDEXES, [row]))
        for collection in drop:
            self.ask(lambda name=collection: self.client.drop_collection(name))  # type: ignore[misc]

    def create(self, manifest: MilvusManifest) -> None:
        """Make the collection of a build, without rows, unless it is there."""
        from pymilvus import DataType, Function, FunctionType

        if self.ask(lambda: self.client.has_collection(manifest.collection)):
            return
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=True)
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=_MAX_BYTES)
        name = analyzer_name(manifest.language).removeprefix("Lucene's ").removesuffix("Analyzer").lower()
        stems = [{"type": "stemmer", "language": name}] if name in _STEMMERS.split() else []
        plain = {"tokenizer": "standard", "filter": ["lowercase", *stems]}
        analyzer = {"type": "english"} if manifest.language == ENGLISH else plain
        words = {"enable_analyzer": True, "analyzer_params": analyzer}
        schema.add_field("contents", DataType.VARCHAR, max_length=_MAX_BYTES, **words)
        indexes = self.client.prepare_index_params()
        if manifest.bm25:
            schema.add_field(_SPARSE, DataType.SPARSE_FLOAT_VECTOR)
            schema.add_function(Function("bm25", FunctionType.BM25, ["contents"], [_SPARSE]))
            settings = {"bm25_k1": manifest.k1, "bm25_b": manifest.b}
            indexes.add_index(_SPARSE, index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params=settings)
        if manifest.encoder:
            schema.add_field(_DENSE, DataType.FLOAT_VECTOR, dim=manifest.encoder.dimensions)
            indexes.add_index(_DENSE, index_type="AUTOINDEX", metric_type="IP")
        self.ask(lambda: self.client.create_collection(manifest.collection, schema=schema, index_params=indexes))

    def query(self, manifest: MilvusManifest, fields: list[str], **which: Any) -> list[dict[str, Any]]:
        return self.ask(lambda: list(self.client.query(manifest.collection, output_fields=fields, **_NOW, **which)))

    def check_encoder(self, manifest: MilvusManifest, encoder: Encoder) -> None:
        """Refuse an encoder whose embedding of a passage differs from the stored one."""
        for row in self.query(manifest, [*_TEXTS, _DENSE], filter="", limit=1):
            [embedding] = encoder.encode_passages([_parse_row(row)])
            if not same_embedding(embedding, np.asarray(row[_DENSE], dtype=np.float32)):
                problem = f"{self.place} was built with another model than {encoder.name} is here"
                raise InputError(problem, "Use the same model, or build again with --force")


def open_milvus(rest: str) -> IndexRetriever:
    """The retriever of an index in Milvus, which is named without `milvus:`; see `MilvusIndex`."""
    search = read_options("milvus", rest, MilvusOptions)[1].search
    kind, weight = search.partition(":")[0], check_retriever(search)
    if kind not in ("bm25", "dense", "hybrid", "auto"):
        raise InputError(f"'{search}' does not say how Milvus searches", "Write bm25, dense, hybrid or auto")
    index = MilvusIndex(f"milvus:{rest}")
    manifest, where = index.manifest(), index.options.filter
    if where:
        fields = ", ".join(manifest.metadata) or "id"
        hint = f"Filter by {fields}, as Milvus writes it: year >= 2020 and lang == 'en'"
        try:
            some = index.query(manifest, ["id"], filter=where, limit=1)
        except RetrievalError as error:
            raise InputError(f"Milvus cannot filter by '{where}': {error.problem}", hint) from error
        if not some:
            raise InputError(f"no passage of {index.place} passes the filter '{where}'", hint)
    if kind == "auto":
        kind = "bm25" if manifest.encoder is None else "hybrid" if manifest.bm25 else "dense"
    if kind != "hybrid":
        return MilvusRetriever(index, manifest, dense=kind == "dense")
    parts = (MilvusRetriever(index, manifest, dense=dense) for dense in (False, True))
    return HybridRetriever(*parts, weight=weight)


class MilvusRetriever(NoDeepcopy):
    """A `Retriever` over one part of an index in Milvus.

    BM25 is Milvus's own, from the terms of its own analyzer: its scores and those of Lucene do not compare. Dense
    scores are inner products, as close to exact as the server's index is.
    """

    def __init__(self, index: MilvusIndex, manifest: MilvusManifest, *, dense: bool) -> None:
        self.place, self.manifest, self._index = index.place, manifest, index
        if not (manifest.encoder if dense else manifest.bm25):
            part = "dense" if dense else "BM25"
            raise RetrievalError(f"{self.place} has no {part} part", "Search the other, or rebuild it with both")
        self.encoder = manifest.encoder.encoder() if manifest.encoder and dense else None
        if self.encoder:
            index.check_encoder(manifest, self.encoder)

    @property
    def identity(self) -> dict[str, Any]:
        manifest, where = self.manifest, self._index.options.filter
        common = {"index": manifest.fingerprint, "engine": "milvus", **({"filter": where} if where else {})}
        if self.encoder and manifest.encoder:
            return {**common, "retriever": "dense", "encoder": manifest.encoder.model_dump(mode="json")}
        settings = {"k1": manifest.k1, "b": manifest.b}
        own = {} if settings == {"k1": K1, "b": B} else {"bm25": settings}
        return {**common, **own, **({} if manifest.language == ENGLISH else {"language": manifest.language})}

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        if k < 1 or not queries:
            return [[] for _ in queries]
        if k > MAX_PASSAGES:
            raise InputError(f"{k:,} passages are wanted for a query, Milvus gives {MAX_PASSAGES:,}", "Want fewer")
        step = min(_QUERIES, MAX_PASSAGES // k)
        return [ranking for at in range(0, len(queries), step) for ranking in self._search(queries[at : at + step], k)]

    def _search(self, queries: Sequence[str], k: int) -> Iterator[list[Passage]]:
        whole = [drop_half_characters(query) for query in queries]
        dense = self.encoder and list(self.encoder.encode_queries(whole))
        inputs = dense or [split_unspaced(query, self.manifest.language, cjk=True) for query in whole]
        how: dict[str, Any] = {"limit": k, "filter": self._index.options.filter, "output_fields": _TEXTS, "timeout": 60}
        how |= {"anns_field": _DENSE if dense else _SPARSE, "search_params": {"metric_type": "IP" if dense else "BM25"}}
        for hits in self._index.ask(lambda: self._index.client.search(self.manifest.collection, inputs, **how)):
            scored = (_parse_row({**hit["entity"], "id": hit["id"]}, round(hit["distance"], _DIGITS)) for hit in hits)
            yield sorted(scored, key=lambda p: (-p.score, p.id))  # Milvus orders equals as it likes

    def passages(self) -> Iterator[Passage]:
        """All passages that pass the filter, in the order of their ids."""
        how = {"filter": self._index.options.filter, "output_fields": _TEXTS, "batch_size": 1000}
        rows = self._index.ask(lambda: self._index.client.query_iterator(self.manifest.collection, **how))
        while batch := self._index.ask(rows.next):
            yield from map(_parse_row, batch)
        rows.close()

    def passage(self, passage_id: str) -> Passage | None:
        """The passage of this id, if it passes the filter."""
        named = f"id == {json.dumps(passage_id, ensure_ascii=False)}"
        where = f"({self._index.options.filter}) and {named}" if self._index.options.filter else named
        return next(map(_parse_row, self._index.query(self.manifest, _TEXTS, filter=where)), None)


def build_milvus(
    sources: Sequence[Path],
    index: MilvusIndex,
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
) -> MilvusManifest:
    """Build an index of files and folders in Milvus, in bounded memory; see `build_index`.

    A finished index of this name is searched until the new one takes its place. What is resumed sends only the passages
    that the killed build has not sent, and embeds none that it or the finished index has embedded: so an index is also
    brought up to date with its sources. `metadata` names the fields of rows by which passages can be filtered.
    """
    started = time.monotonic()
    if encoder is None and not bm25:
        raise InputError("an index needs a part to be searched by", "Name a model: --dense MODEL")
    check_parameters(k1, b)
    if language:
        check_language(language)
    own_fields = ("id", *_TEXTS, _SPARSE, _DENSE)
    if unfit := [name for name in metadata if not name.isidentifier() or name in own_fields]:
        hint = f"Name one of letters, digits and _ that is none of {', '.join(own_fields)}"
        raise InputError(f"passages cannot be filtered by a field '{unfit[0]}'", hint)
    names, place = tuple(map(str, sources)), index.place
    read = source_reader(sources, fields, contexts=contexts, skip_bad=skip_bad, metadata=metadata)
    parts, builds = batches(require_passages(read(), names), _ROWS), index.builds()
    finished, begun = builds.finished, builds.building
    if (begun or finished) and not (force or resume):
        problem = f"a build of {place} was begun and not finished" if begun else f"index {place} is there already"
        raise InputError(problem, "Continue it, or bring it up to date, with --resume, or start again: --force")
    base = None if force else begun or finished
    first = next(parts)
    if language is None:
        guess = detect_main_language(p.passage.text for p in first[:: max(1, len(first) // 200)]) if bm25 else ENGLISH
        language = base.language if base else guess
    collection = begun.collection if begun and base else f"{index.name}_{datetime.now(UTC):%Y%m%d%H%M%S%f}"
    settings: dict[str, Any] = {"bm25": bm25, "language": language, "k1": k1, "b": b, "metadata": tuple(metadata)}
    embeddings = EncoderSettings.of(encoder) if encoder else None
    manifest = MilvusManifest(collection=collection, sources=names, encoder=embeddings, **settings)
    before, now = (base or manifest).settings, manifest.settings
    if changes := [f"{key} {before[key]!r}, now {now[key]!r}" for key in now if before[key] != now[key]]:
        hint = "Name the same, or rebuild with --force"
        raise InputError(f"{place} was begun with other settings: {', '.join(changes)}", hint)
    if begun and base:
        index.create(begun)  # unless the build was killed before
    held = [m for m in (begun, finished if encoder else None) if base and m and m.settings == now]
    held = [m for m in held if index.query(m, ["id"], filter="", limit=1)]  # Milvus gives no vectors of empty ones
    if encoder:
        for other in held:
            index.check_encoder(other, encoder)
    replaced = [*builds.replaced, *([begun.collection] if begun and not base else [])]
    index.save(_Builds(finished=finished, building=manifest, replaced=replaced), drop=replaced)
    index.create(manifest)
    digest, ids, done = Fingerprint(), IdHashes(), 0
    with stage("passages") as on_progress, add_places(read):
        for part in chain([first], parts):
            ids.add([placed.passage for placed in part], done + 1)
            for placed in part:
                digest.add(placed.passage)
            _send(part, index, manifest, encoder, held)
            done += len(part)
            on_progress(done)
    index.ask(lambda: index.client.flush(manifest.collection))
    [counted] = index.query(manifest, ["count(*)"], filter="")
    if (rows := counted["count(*)"]) != done:
        raise InputError(f"the build of {place} holds {rows:,} passages, its sources {done:,}", "Start again: --force")
    built = {"fingerprint": digest.hexdigest(), "passages": done, "seconds": round(time.monotonic() - started, 3)}
    manifest = manifest.model_copy(update={**built, "built_at": datetime.now(UTC).isoformat(timespec="seconds")})
    # programs that have the former collection open search it until the next build, which deletes it
    index.save(_Builds(finished=manifest, replaced=[finished.collection] if finished else []))
    return manifest


def _send(
    part: Sequence[Placed],
    index: MilvusIndex,
    manifest: MilvusManifest,
    encoder: Encoder | None,
    held: Sequence[MilvusManifest],
) -> None:
    """Send the passages that the collection does not hold as they are, and embed those that no held one has."""
    rows = {p.passage.id: _milvus_row(p.passage, manifest.language) | dict(p.metadata) for p in part}
    embeddings: dict[str, Any] = {}
    fields = [*_TEXTS, *manifest.metadata, *([_DENSE] if encoder else [])]
    for other in held:
        for row in index.query(other, fields, ids=list(rows)) if rows else ():
            i, embedding = row["id"], row.pop(_DENSE, None)
            if other.collection == manifest.collection and row == rows[i]:
                del rows[i]
            elif all(row.get(text) == rows[i].get(text) for text in _TEXTS):
                embeddings[i] = embedding
    if encoder:
        missing = [p.passage for p in part if p.passage.id in rows.keys() - embeddings.keys()]
        if missing:
            embeddings |= zip((p.id for p in missing), encoder.encode_passages(missing), strict=True)
        rows = {i: row | {_DENSE: embeddings[i]} for i, row in rows.items()}
    if rows:
        index.ask(lambda: index.client.upsert(manifest.collection, list(rows.values())))


def _milvus_row(passage: Passage, language: str) -> dict[str, Any]:
    text = contents(passage)
    indexed = split_unspaced(text, language, cjk=True)
    if (length := max(len(indexed.encode()), len(passage.id.encode()))) > _MAX_BYTES:
        problem = f"passage '{passage.id}' has {length:,} bytes; Milvus takes {_MAX_BYTES:,}"
        raise InputError(problem, "Split it into shorter ones")
    return {"id": passage.id, "contents": indexed, **({} if indexed == text else {"passage": text})}


def _parse_row(row: Mapping[str, Any], score: float = 0.0) -> Passage:
    title, _, text = row.get("passage", row["contents"]).partition("\n")
    return Passage(id=row["id"], text=text, title=title, score=score)
