"""Finding passages and putting them in order."""

from typedrag.retrieval.bm25 import BM25Retriever
from typedrag.retrieval.fusion import reciprocal_rank_fusion
from typedrag.retrieval.index import Manifest, build_index, read_manifest
from typedrag.retrieval.protocols import AspectReranker, Reranker, Retriever
from typedrag.retrieval.rerankers import NoReranker, open_reranker
from typedrag.retrieval.sources import FieldMap, read_passages

__all__ = [
    "AspectReranker",
    "BM25Retriever",
    "FieldMap",
    "Manifest",
    "NoReranker",
    "Reranker",
    "Retriever",
    "build_index",
    "open_reranker",
    "read_manifest",
    "read_passages",
    "reciprocal_rank_fusion",
]
