"""Retrievers by spec: `bm25`, `dense`, `hybrid[:WEIGHT]`, `auto`, `gold` or the address of an index elsewhere.

`hybrid` fuses the ranks of BM25 and the dense part; with a WEIGHT of the dense part, 0 to 1, it fuses
their scores. `auto` is `hybrid` where the index has both parts, else the part that it has. `gold` gives the
passages that an evaluation's dataset labels. What `typedrag index serve` searches is had by its address,
`http://HOST:PORT`, without any index here; so is a collection of Milvus, `milvus:http://HOST:PORT/COLLECTION`, which
says itself how it is searched: see `milvus.address`. `KIND:REST` of any other KIND is opened by the entry point of that
name in the group `typedrag.retrievers`, which is called with REST.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from typedrag.errors import InputError, RetrievalError
from typedrag.registry import declared, loaded
from typedrag.retrieval.default_index import default_index
from typedrag.retrieval.index.bm25_part import Manifest, has_bm25, read_manifest
from typedrag.retrieval.index.dense_part import has_dense, read_dense_manifest
from typedrag.retrieval.index.generations import open_current
from typedrag.retrieval.milvus.address import FORM, MilvusAddress, is_milvus
from typedrag.retrieval.milvus.collection import Collection, CollectionManifest
from typedrag.retrieval.milvus.retrievers import open_milvus
from typedrag.retrieval.protocols import IndexRetriever
from typedrag.retrieval.search.bm25 import BM25Retriever, BM25Setting
from typedrag.retrieval.search.dense import DenseRetriever
from typedrag.retrieval.search.gold import GoldRetriever
from typedrag.retrieval.search.hybrid import HybridRetriever, check_weight
from typedrag.retrieval.search.remote import check_address, is_remote, open_remote

logger = logging.getLogger(__name__)

FORMS = f"bm25, dense, hybrid, hybrid:WEIGHT, auto, gold, http://HOST:PORT, {FORM}"
_OF_A_FOLDER = ("bm25", "dense", "hybrid", "auto", "gold")
_OURS = (*_OF_A_FOLDER, "http", "https", "milvus")


def brings_index(spec: str) -> bool:
    """True if a spec is the address of an index itself, beside which none is named."""
    return is_remote(spec) or is_milvus(spec) or is_registered(spec)


def is_registered(spec: str) -> bool:
    """True if an entry point opens a spec.

    Raises:
        InputError: If packages declare the same kind, or one of ours.
    """
    kind, colon, _ = spec.partition(":")
    return bool(colon) and kind not in _OURS and kind in declared("retrievers", _OURS)


def server_of(spec: str) -> str:
    """The address of the server that a spec names; empty if it names none."""
    if is_milvus(spec) and not (address := MilvusAddress.parse(spec)).is_file:
        return address.server
    return spec if is_remote(spec) else ""


def check_retriever(spec: str) -> float | None:
    """The weight that a spec gives the dense part, None where ranks are fused or a server or a package knows.

    Raises:
        InputError: If the spec has none of the forms, or the weight is out of range.

    Example:
        >>> check_retriever("hybrid:0.7"), check_retriever("bm25")
        (0.7, None)
    """
    if is_remote(spec):
        check_address(spec)
        return None
    if is_milvus(spec):
        search = MilvusAddress.parse(spec).search
        if brings_index(search) or search == "gold":
            raise InputError(f"'{search}' does not say how Milvus searches", "Write bm25, dense, hybrid or auto")
        return check_retriever(search)
    if is_registered(spec):
        return None
    kind, colon, weight = spec.partition(":")
    if kind not in _OF_A_FOLDER or (colon and kind != "hybrid"):
        forms = ", ".join([FORMS, *(f"{kind}:…" for kind in declared("retrievers", _OURS))])
        raise InputError(f"'{spec}' is no retriever", f"Write one of: {forms}")
    if not colon:
        return None
    try:
        value = float(weight)
    except ValueError:
        raise InputError(f"'{spec}' is no retriever: '{weight}' is no number", "Write it like hybrid:0.5") from None
    check_weight(value)
    return value


def check_index(spec: str, index: Path | str | None = None) -> None:
    """Refuse an index that lacks a part which a spec's retriever searches, without opening it.

    Args:
        spec: What searches.
        index: See `open_retriever`.

    Raises:
        InputError: If the spec has none of the forms, or is an address and an index is named, too.
        RetrievalError: If there is no such index or index server, or a part is missing or unfinished.
    """
    check_retriever(spec)
    if brings_index(spec):
        open_retriever(spec, index)
        return
    index = _named(index)
    kind = spec.partition(":")[0]
    if kind in ("bm25", "hybrid", "gold"):
        read_manifest(index)
    if kind in ("dense", "hybrid"):
        read_dense_manifest(index)


def open_retriever(
    spec: str, index: Path | str | None = None, bm25: Mapping[BM25Setting, float] | None = None
) -> IndexRetriever:
    """The retriever that a spec names, ready to be searched.

    Args:
        spec: What searches.
        index: The index folder; by default `default_index()`, and none where the spec is an address itself.
        bm25: Settings of BM25, where it is searched, that are not the index's.

    Raises:
        InputError: If the spec has none of the forms, or is an address and an index is named, too, or a setting
            is out of its range.
        RetrievalError: If the index, its dense part or the server is missing or cannot be used.
    """
    weight = check_retriever(spec)
    if brings_index(spec):
        if index is not None:
            raise InputError(f"both --index {index} and --retriever {spec} are given", "The retriever names its own")
        if is_registered(spec):
            return _open_registered(spec, bm25 or {})
        return open_milvus(MilvusAddress.parse(spec), bm25) if is_milvus(spec) else open_remote(spec, bm25)
    folder = _named(index)
    return open_current(folder, lambda _: _open(spec.partition(":")[0], folder, weight, bm25 or {}))


def _open_registered(spec: str, bm25: Mapping[BM25Setting, float]) -> IndexRetriever:
    kind, _, rest = spec.partition(":")
    opening = loaded(declared("retrievers", _OURS)[kind])
    settings = {str(name): value for name, value in bm25.items()}
    try:
        inspect.signature(opening).bind(rest, **settings)
    except TypeError:
        raise InputError(f"{kind} takes no settings of BM25, and some are given", "Leave them out") from None
    return opening(rest, **settings)


def _named(index: Path | str | None) -> Path:
    if not (index or os.environ.get("TYPEDRAG_INDEX")):
        _warn_of_the_sample()
    return Path(index or default_index())


@cache
def _warn_of_the_sample() -> None:
    logger.warning(
        "no index is named, so a sample on everyday subjects is searched: name yours by --index FOLDER, in Python by "
        "index=FOLDER, or by TYPEDRAG_INDEX"
    )


def _open(kind: str, index: Path, weight: float | None, settings: Mapping[BM25Setting, float]) -> IndexRetriever:
    if kind == "auto":
        kind = "bm25" if not has_dense(index) else "hybrid" if has_bm25(index) else "dense"
    if kind == "dense":
        return DenseRetriever(index)
    sparse = BM25Retriever(index, k1=settings.get("k1"), b=settings.get("b"))
    if kind == "gold":
        return GoldRetriever(sparse)
    return sparse if kind == "bm25" else HybridRetriever(sparse, DenseRetriever(index), weight=weight)


def bm25_of_index(spec: str, index: Path | str | None = None) -> dict[str, float]:
    """The settings of BM25 that the index has, which a spec's retriever searches; see `open_retriever`.

    Raises:
        RetrievalError: If there is no such index, or it has no BM25 part.
    """
    if is_registered(spec):
        settings = getattr(open_retriever(spec), "bm25", None)
        if settings is None:
            raise RetrievalError(f"{spec.partition(':')[0]} has no settings of BM25", "Leave them out")
        return dict(settings)
    if not is_remote(spec):
        manifest: Manifest | CollectionManifest
        manifest = Collection(MilvusAddress.parse(spec)).finished() if is_milvus(spec) else read_manifest(_named(index))
        return {"k1": manifest.k1, "b": manifest.b}
    served = open_remote(spec).served
    if "k1" not in served.manifest:
        raise RetrievalError(f"the index at {spec} has no BM25 part", "Leave its settings out")
    return {"k1": served.manifest["k1"], "b": served.manifest["b"]}


def tuned(retriever: IndexRetriever, bm25: Mapping[BM25Setting, float]) -> IndexRetriever:
    """A retriever with other settings of BM25, which shares its dense part.

    Raises:
        InputError: If a setting is out of its range.
        RetrievalError: If the index is another by now, or cannot be opened.
    """
    sparse = retriever.sparse if isinstance(retriever, HybridRetriever) else retriever
    if not bm25 or not isinstance(sparse, BM25Retriever):
        return retriever
    other = BM25Retriever(sparse.index, k1=bm25.get("k1"), b=bm25.get("b"))
    if other.manifest.fingerprint != sparse.manifest.fingerprint:
        raise RetrievalError(f"index {sparse.index} has changed since it was opened", "Open it anew")
    if isinstance(retriever, HybridRetriever):
        return HybridRetriever(other, retriever.dense, weight=retriever.weight)
    return other
