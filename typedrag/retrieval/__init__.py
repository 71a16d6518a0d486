"""Retrievers, which find passages, and rerankers, which order them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typedrag.retrieval.encoder import Encoder, open_encoder
    from typedrag.retrieval.index.bm25_part import Manifest, read_manifest
    from typedrag.retrieval.index.building import append_index, build_index, embed_index
    from typedrag.retrieval.index.dense_part import DenseManifest, read_dense_manifest
    from typedrag.retrieval.index.sources import FieldMap, read_passages
    from typedrag.retrieval.opening import check_index, check_retriever, open_retriever
    from typedrag.retrieval.protocols import AspectReranker, IndexRetriever, Reranker, Retriever
    from typedrag.retrieval.rerankers import NoReranker, check_reranker, open_reranker, reader, reranker_identity
    from typedrag.retrieval.search.bm25 import BM25Retriever, BM25Setting
    from typedrag.retrieval.search.dense import DenseRetriever
    from typedrag.retrieval.search.hybrid import (
        HybridRetriever,
        reciprocal_rank_fusion,
        retriever_parts,
        round_robin,
        weighted_fusion,
    )

# Imported at first use: a process that only reads documents needs none of them, and they need DSPy.
_HOMES = {
    name: home
    for home, names in {
        "encoder": "Encoder open_encoder",
        "index.bm25_part": "Manifest read_manifest",
        "index.building": "append_index build_index embed_index",
        "index.dense_part": "DenseManifest read_dense_manifest",
        "index.sources": "FieldMap read_passages",
        "opening": "check_index check_retriever open_retriever",
        "protocols": "AspectReranker IndexRetriever Reranker Retriever",
        "rerankers": "NoReranker check_reranker open_reranker reader reranker_identity",
        "search.bm25": "BM25Retriever BM25Setting",
        "search.dense": "DenseRetriever",
        "search.hybrid": "HybridRetriever reciprocal_rank_fusion retriever_parts round_robin weighted_fusion",
    }.items()
    for name in names.split()
}

__all__ = [
    "AspectReranker", "BM25Retriever", "BM25Setting", "DenseManifest", "DenseRetriever", "Encoder", "FieldMap",
    "HybridRetriever", "IndexRetriever", "Manifest", "NoReranker", "Reranker", "Retriever", "append_index",
    "build_index", "check_index", "check_reranker", "check_retriever", "embed_index", "open_encoder", "open_reranker",
    "open_retriever", "read_dense_manifest", "read_manifest", "read_passages", "reader", "reciprocal_rank_fusion",
    "reranker_identity", "retriever_parts", "round_robin", "weighted_fusion",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'typedrag.retrieval' has no attribute '{name}'")
    return getattr(import_module(f"typedrag.retrieval.{_HOMES[name]}"), name)
