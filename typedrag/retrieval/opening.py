"""Retrievers by spec.

`bm25`, `dense`, `hybrid[:WEIGHT]`, `auto` and `gold` search an index in a folder. `hybrid` fuses the ranks of BM25 and
the dense part; with a WEIGHT of the dense part, 0 to 1, it fuses their scores. `auto` is `hybrid` where the index has
both parts, else the part that it has. `gold` gives the passages that an evaluation's dataset labels.

Other specs bring their index: `http://HOST:PORT` is searched by `typedrag index serve`, and any other `KIND:REST` by
what the entry point KIND of the group `typedrag.retrievers` gives for REST. Settings of BM25 are its keywords `k1` and
`b`, if it takes them; the retriever's attribute `bm25` then has those in use.
"""

import inspect
import logging
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.registry import SpecGrammar
from typedrag.datasets.sample import PASSAGES
from typedrag.files.locks import wait_for_lock
from typedrag.files.text_files import hash_files
from typedrag.lms.models import cache_dir
from typedrag.retrieval.index.bm25_part import has_bm25, read_manifest
from typedrag.retrieval.index.building import build_index, read_parts
from typedrag.retrieval.index.dense_part import read_dense_manifest
from typedrag.retrieval.index.generations import FORMAT, open_current
from typedrag.retrieval.index.sources import read_passages
from typedrag.retrieval.protocols import IndexRetriever
from typedrag.retrieval.search.bm25 import BM25Retriever, BM25Setting, GoldRetriever
from typedrag.retrieval.search.dense import DenseRetriever
from typedrag.retrieval.search.hybrid import HybridRetriever, check_weight
from typedrag.retrieval.search.remote import check_address, open_remote

Options = TypeVar("Options", bound=BaseModel)

logger = logging.getLogger(__name__)

_OF_A_FOLDER = ("bm25", "dense", "hybrid", "auto", "gold")
_REMOTE = ("http", "https")
_GRAMMAR = SpecGrammar(
    "retriever", "bm25", "dense", "hybrid[:WEIGHT]", "auto", "gold", *(f"{kind}:ADDRESS" for kind in _REMOTE),
    group="retrievers",
)  # fmt: skip
_SERVER = re.compile(r"https?://[^/?#]+")


def brings_index(spec: str) -> bool:
    """True if a spec is the address of an index itself, beside which none is named."""
    kind, colon, _ = spec.partition(":")
    try:
        return bool(colon) and kind not in _OF_A_FOLDER and bool(_GRAMMAR.parse(spec))
    except InputError:
        return False


def find_server(spec: str) -> str:
    """The address of the server that a spec names; empty if it names none."""
    server = _SERVER.search(spec)
    return spec if spec.partition(":")[0] in _REMOTE else server[0] if server else ""


def check_retriever(spec: str) -> float | None:
    """The weight that a spec, which must have one of the forms, gives the dense part; None if it gives none."""
    kind, argument = _GRAMMAR.parse(spec)
    if kind in _REMOTE:
        check_address(spec)
    if kind != "hybrid" or not argument:
        return None
    try:
        weight = float(argument)
    except ValueError:
        raise InputError(f"'{spec}' is no retriever: '{argument}' is no number", "Write it like hybrid:0.5") from None
    check_weight(weight)
    return weight


def read_options(kind: str, rest: str, options: type[Options], **settings: float) -> tuple[str, Options]:
    """The index and the options that a spec `KIND:INDEX?NAME=VALUE&NAME=VALUE` names; `settings` replace the spec's."""
    index, _, query = rest.partition("?")
    try:
        return index, options.model_validate({**dict(parse_qsl(query, keep_blank_values=True)), **settings})
    except ValidationError as error:
        first = error.errors()[0]
    name, known = first["loc"][0], ", ".join(options.model_fields)
    if first["type"] == "missing":
        raise InputError(f"{kind} needs an option {name}", f"Write {kind}:INDEX?{name}=…")
    if first["type"] == "extra_forbidden":
        raise InputError(f"{kind} has no option '{name}'", f"Options: {known}")
    raise InputError(f"option {name} of {kind} cannot be '{first['input']}'", first["msg"])


def check_index(spec: str, index: Path | str | None = None) -> None:
    """Refuse an index that lacks a part which a spec's retriever searches; one in a folder is not opened."""
    check_retriever(spec)
    if brings_index(spec):
        open_retriever(spec, index)
        return
    folder, kind = _named(index), spec.partition(":")[0]
    if kind in ("bm25", "hybrid", "gold"):
        read_manifest(folder)
    if kind in ("dense", "hybrid"):
        read_dense_manifest(folder)


def open_retriever(
    spec: str, index: Path | str | None = None, bm25: Mapping[BM25Setting, float] | None = None
) -> IndexRetriever:
    """The retriever that a spec names, ready to be searched.

    Args:
        spec: What searches.
        index: The index folder; by default `default_index()`, and none where the spec brings its index.
        bm25: Settings of BM25, where it is searched, that are not the index's.

    Raises:
        InputError: If the spec has none of the forms, or brings its index and one is named, too, or a setting
            is out of its range or cannot be set.
        RetrievalError: If the index, its dense part or the server is missing or cannot be used.
    """
    weight, settings = check_retriever(spec), dict(bm25 or {})
    if not brings_index(spec):
        folder = _named(index)
        return open_current(folder, lambda _: _open_folder(spec.partition(":")[0], folder, weight, settings))
    if index is not None:
        raise InputError(f"both --index {index} and --retriever {spec} are given", "The retriever names its own")
    parsed = _GRAMMAR.parse(spec)
    opening = _GRAMMAR.from_package(parsed)
    if opening is None:
        return open_remote(spec, settings)
    try:
        inspect.signature(opening).bind(parsed.argument, **settings)
    except TypeError:
        raise InputError(f"{parsed.kind} takes no settings of BM25, and some are given", "Leave them out") from None
    return opening(parsed.argument, **settings)


def _named(index: Path | str | None) -> Path:
    if not (index or os.environ.get("TYPEDRAG_INDEX")):
        _warn_sample()
    return Path(index or default_index())


@cache
def _warn_sample() -> None:
    logger.warning(
        "no index is named, so a sample on everyday subjects is searched: name yours by --index FOLDER, in Python by "
        "index=FOLDER, or by TYPEDRAG_INDEX"
    )


def _open_folder(kind: str, index: Path, weight: float | None, settings: Mapping[BM25Setting, float]) -> IndexRetriever:
    if kind == "auto":
        bm25, dense = open_current(index, read_parts)
        kind = "hybrid" if bm25 and dense else "dense" if dense else "bm25"
    if kind == "dense":
        return DenseRetriever(index)
    sparse = BM25Retriever(index, k1=settings.get("k1"), b=settings.get("b"))
    if kind == "gold":
        return GoldRetriever(sparse)
    return sparse if kind == "bm25" else HybridRetriever(sparse, DenseRetriever(index), weight=weight)


def bm25_of_index(spec: str, index: Path | str | None = None) -> dict[str, float]:
    """The settings of BM25 that the index has, which a spec's retriever searches; see `open_retriever`."""
    if not brings_index(spec):
        manifest = read_manifest(_named(index))
        return {"k1": manifest.k1, "b": manifest.b}
    settings = getattr(open_retriever(spec), "bm25", None)
    if settings is None:
        raise RetrievalError(f"{spec} has no settings of BM25", "Leave them out")
    return dict(settings)


def default_index() -> Path:
    """The index that `TYPEDRAG_INDEX` names, else one of the sample corpus, which is built into the cache folder."""
    if configured := os.environ.get("TYPEDRAG_INDEX"):
        return Path(configured)
    index = cache_dir() / "indexes" / f"sample-{hash_files(PASSAGES)[:8]}-{FORMAT}"
    if not has_bm25(index):
        index.parent.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(index):
            if not has_bm25(index):  # no other process was first
                build_index(read_passages([PASSAGES]), index, sources=["sample"], force=True)
    return index
