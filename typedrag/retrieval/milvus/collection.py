"""A collection of Milvus that holds an index, and its manifest.

A row has the passage's `id`; `contents`, its title on the first line and then its text; `passage`, the same where the
analyzer reads another text; `dense`, the embedding; and the metadata that its passages are filtered by, as dynamic
fields. Milvus itself makes `sparse`, the terms of BM25, out of `contents`. The manifests of all indexes of a database
are rows of one further collection, as not every Milvus can change a collection's description.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from typedrag.errors import InputError, RetrievalError, first_line
from typedrag.extras import require
from typedrag.records import Passage
from typedrag.redaction import without_keys
from typedrag.retrieval.encoder import Encoder
from typedrag.retrieval.index.analyzers import in_pairs
from typedrag.retrieval.index.bm25_part import K1, B, contents
from typedrag.retrieval.index.dense_part import EncoderSettings, same_embedding
from typedrag.retrieval.milvus.address import TOKEN, MilvusAddress
from typedrag.texts.language import ENGLISH

if TYPE_CHECKING:
    from pymilvus import MilvusClient

T = TypeVar("T")
FORMAT = 1
SPARSE, DENSE = "sparse", "dense"
TEXTS = ("contents", "passage")
FIELDS = ("id", *TEXTS, SPARSE, DENSE)
"""Fields that no metadata can be named by."""
LONGEST = 65_535
"""Bytes of a text in Milvus."""
_MANIFESTS = "typedrag_indexes"
_STEMMERS = {
    "ar": "arabic", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish", "fi": "finnish",
    "fr": "french", "hu": "hungarian", "it": "italian", "nl": "dutch", "nn": "norwegian", "no": "norwegian",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
_SECONDS = 10.0
"""For a connection."""
_WAITS = (0.25, 0.5, 1.0, 2.0, 4.0)
_WAITS_TO_CONNECT = _WAITS[:2]
"""A server closes connections that were idle, and the next attempt may still meet the closed one."""
_CONNECT_FAILED = 2
"""Milvus's code of a server that is not there."""
_NOW: dict[str, Any] = {"consistency_level": "Strong", "timeout": 60.0}
"""What was written a moment ago is read, too."""


class CollectionManifest(BaseModel):
    """The contents of an index in Milvus, and how it was built."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    """Raised with each change that an older typedrag cannot read."""
    sources: tuple[str, ...] = ()
    """The files and folders that it was built from, as they were named."""
    fingerprint: str = ""
    """That of an index of the same passages in a folder; see `index.Manifest`."""
    passages: int = 0
    """The number of passages: 0 until the build has finished."""
    bm25: bool = True
    """True if it has a BM25 part."""
    language: str = ENGLISH
    """ISO 639 code of the passages' language."""
    k1: float = K1
    """BM25's term frequency saturation."""
    b: float = B
    """BM25's length normalisation."""
    encoder: EncoderSettings | None = None
    """The settings of the encoder that embedded the passages; None if there is no dense part."""
    metadata: tuple[str, ...] = ()
    """The fields of the sources that passages can be filtered by."""
    built_at: str = ""
    """Time of the end of the build, UTC."""
    seconds: float = 0.0
    """Wall time of the build, or of its last part if it was continued."""
    versions: dict[str, str] = {}
    """The versions of typedrag and of Milvus's client."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a build is begun with and cannot be continued without."""
        return self.model_dump(include={"bm25", "language", "k1", "b", "encoder", "metadata"})


class Collection:
    """A connection to a collection, which need not be there yet. Safe to use from many threads.

    Args:
        address: Of the collection; the key of its server is in `MILVUS_TOKEN`.

    Raises:
        MissingExtra: If Milvus's client is not installed.
        RetrievalError: If the server cannot be reached, or lets nobody in without another key.
    """

    def __init__(self, address: MilvusAddress) -> None:
        require("pymilvus")
        if address.is_file:
            _check_lite()
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # its errors are raised, too
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # likewise
        from pymilvus import MilvusClient

        self.address = address
        self.name = address.collection
        token = os.environ.get(TOKEN, "")
        self.client: MilvusClient = self._retried(
            lambda: MilvusClient(address.server, token=token, timeout=_SECONDS), _WAITS_TO_CONNECT
        )

    def ask(self, call: Callable[[MilvusClient], T]) -> T:
        """The result of a call of Milvus's client, which is made again where the server is gone for a moment.

        Raises:
            RetrievalError: For any fault of the server.
        """
        return self._retried(lambda: call(self.client), _WAITS)

    def _retried(self, call: Callable[[], T], waits: Sequence[float]) -> T:
        for wait in (*waits, None):
            try:
                return call()
            except _faults() as error:
                if wait is None or getattr(error, "code", None) != _CONNECT_FAILED:
                    raise self._fault(error) from error
                time.sleep(wait)
        raise AssertionError("unreachable")

    def _fault(self, error: Exception) -> RetrievalError:
        reason = without_keys(getattr(error, "message", "") or first_line(error))
        return RetrievalError(
            f"Milvus at {self.address.server} does not answer: {reason}",
            f"Is it running, and is its key in {TOKEN} if it wants one?",
        )

    def exists(self) -> bool:
        """True if the server has a collection of this name."""
        return self.ask(lambda client: client.has_collection(self.name))

    def manifest(self) -> CollectionManifest | None:
        """The manifest, also of an unfinished index; None if there is none.

        Raises:
            RetrievalError: If it cannot be read or its format is newer.
        """

        def read(client: MilvusClient) -> list[dict[str, Any]]:
            if not client.has_collection(_MANIFESTS):
                return []
            return list(client.get(_MANIFESTS, ids=[self.name], output_fields=["manifest"], **_NOW))

        rows = self.ask(read)
        if not rows:
            return None
        try:
            return CollectionManifest.model_validate_json(rows[0]["manifest"])
        except ValueError as error:
            raise RetrievalError(
                f"the manifest of {self.address.place} cannot be read", "Update typedrag, or name another collection"
            ) from error

    def finished(self) -> CollectionManifest:
        """The manifest of a finished index.

        Raises:
            RetrievalError: If there is none.
        """
        manifest = self.manifest()
        build = f"typedrag index build SOURCE… --to {self.address.place}"
        if manifest is None or not self.exists():
            raise RetrievalError(f"{self.address.place} is no index", f"Build it: {build}")
        if not manifest.passages:
            raise RetrievalError(f"the build of {self.address.place} did not finish", f"Continue it: {build} --resume")
        return manifest

    def save(self, manifest: CollectionManifest) -> None:
        """Write the manifest."""
        row = {"name": self.name, "manifest": manifest.model_dump_json(), "vector": [0.0, 0.0]}

        def write(client: MilvusClient) -> None:
            if not client.has_collection(_MANIFESTS):
                _create_manifests(client)
            client.upsert(_MANIFESTS, [row])

        self.ask(write)

    def create(self, manifest: CollectionManifest) -> None:
        """Make the collection, without rows, unless it is there."""
        self.ask(lambda client: None if client.has_collection(self.name) else _create(client, self.name, manifest))

    def drop(self) -> None:
        """Delete the collection, then its manifest."""
        self.ask(lambda client: client.drop_collection(self.name))
        self.ask(lambda client: client.delete(_MANIFESTS, ids=[self.name]))

    def rows(self, ids: Sequence[str], metadata: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The rows of those passages that are there, by id, with their texts and metadata."""
        fields = [*TEXTS, *metadata]
        rows = self.ask(lambda client: client.get(self.name, list(ids), output_fields=fields, **_NOW))
        return {row["id"]: dict(row) for row in rows}

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows, or replace those with the same ids."""
        self.ask(lambda client: client.upsert(self.name, list(rows)))

    def count(self) -> int:
        """The number of rows."""
        [row] = self.ask(lambda client: client.query(self.name, filter="", output_fields=["count(*)"], **_NOW))
        return int(row["count(*)"])

    def flush(self) -> None:
        """Let Milvus index what was written."""
        self.ask(lambda client: client.flush(self.name))


def _create_manifests(client: MilvusClient) -> None:
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False)
    schema.add_field("name", DataType.VARCHAR, is_primary=True, max_length=255)
    schema.add_field("manifest", DataType.VARCHAR, max_length=LONGEST)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)  # Milvus wants one
    indexes = client.prepare_index_params()
    indexes.add_index("vector", index_type="FLAT", metric_type="L2")
    client.create_collection(_MANIFESTS, schema=schema, index_params=indexes)


def _create(client: MilvusClient, name: str, manifest: CollectionManifest) -> None:
    from pymilvus import DataType, Function, FunctionType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=LONGEST)
    text = {"enable_analyzer": True, "analyzer_params": analyzer(manifest.language)} if manifest.bm25 else {}
    schema.add_field("contents", DataType.VARCHAR, max_length=LONGEST, **text)
    indexes = client.prepare_index_params()
    if manifest.bm25:
        schema.add_field(SPARSE, DataType.SPARSE_FLOAT_VECTOR)
        schema.add_function(Function("bm25", FunctionType.BM25, ["contents"], [SPARSE]))
        settings = {"bm25_k1": manifest.k1, "bm25_b": manifest.b}
        indexes.add_index(SPARSE, index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params=settings)
    if manifest.encoder:
        schema.add_field(DENSE, DataType.FLOAT_VECTOR, dim=manifest.encoder.dimensions)
        indexes.add_index(DENSE, index_type="AUTOINDEX", metric_type="IP")
    client.create_collection(name, schema=schema, index_params=indexes, consistency_level="Bounded")


def analyzer(language: str) -> dict[str, Any]:
    """Milvus's analyzer for a language: words in lower case, by their stems where it has a stemmer.

    Example:
        >>> analyzer("en")
        {'type': 'english'}
    """
    if language == ENGLISH:
        return {"type": "english"}
    stemmer = _STEMMERS.get(language)
    return {
        "tokenizer": "standard",
        "filter": ["lowercase", *([{"type": "stemmer", "language": stemmer}] if stemmer else [])],
    }


def row_of(passage: Passage, language: str) -> dict[str, Any]:
    """The fields of a passage without its embedding and metadata.

    Raises:
        InputError: If Milvus cannot hold its text.
    """
    text = contents(passage)
    indexed = in_pairs(text, language)
    if (length := max(len(indexed.encode()), len(passage.id.encode()))) > LONGEST:
        raise InputError(
            f"passage '{passage.id}' has {length:,} bytes; Milvus takes {LONGEST:,}", "Split it into shorter ones"
        )
    return {"id": passage.id, "contents": indexed, **({} if indexed == text else {"passage": text})}


def passage_of(row: dict[str, Any], score: float = 0.0) -> Passage:
    """The passage of a row."""
    title, _, text = row.get("passage", row["contents"]).partition("\n")
    return Passage(id=row["id"], text=text, title=title, score=score)


def check_embeddings(collection: Collection, encoder: Encoder) -> None:
    """Refuse an encoder whose embedding of a passage differs from the stored one.

    Raises:
        InputError: If it differs.
    """
    fields = [*TEXTS, DENSE]
    rows = collection.ask(
        lambda client: client.query(collection.name, filter="", output_fields=fields, limit=1, **_NOW)
    )
    if not rows:
        return
    [embedding] = encoder.encode_passages([passage_of(rows[0])])
    if not same_embedding(embedding, np.asarray(rows[0][DENSE], dtype=np.float32)):
        raise InputError(
            f"{collection.address.place} was built with another model than {encoder.name} is here",
            "Use the same model, or build again with --force",
        )


def _faults() -> tuple[type[Exception], ...]:
    from grpc import RpcError
    from pymilvus.exceptions import MilvusException

    return MilvusException, RpcError


def _check_lite() -> None:
    try:
        lite = version("milvus-lite")
    except PackageNotFoundError:
        lite = ""
    if not lite.startswith("2."):
        raise RetrievalError(
            f"a file of Milvus needs milvus-lite 2, which has Milvus's own engine; installed is {lite or 'none'}",
            "pip install 'milvus-lite>=2.5.1,<3' 'setuptools<82', or name a server",
        )
