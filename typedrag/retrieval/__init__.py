"""Retrievers, which find passages, and rerankers, which order them."""

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

__all__ = [
    "AspectReranker", "BM25Retriever", "BM25Setting", "DenseManifest", "DenseRetriever", "Encoder", "FieldMap",
    "HybridRetriever", "IndexRetriever", "Manifest", "NoReranker", "Reranker", "Retriever", "append_index",
    "build_index", "check_index", "check_reranker", "check_retriever", "embed_index", "open_encoder", "open_reranker",
    "open_retriever", "read_dense_manifest", "read_manifest", "read_passages", "reader", "reciprocal_rank_fusion",
    "reranker_identity", "retriever_parts", "round_robin", "weighted_fusion",
]  # fmt: skip
