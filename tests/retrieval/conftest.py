from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.retrieval.encoders import minilm, save_encoder
from typedrag.retrieval import BM25Retriever, DenseRetriever, build_dense


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> str:
    """The folder of an encoder of random weights."""
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def both_parts(sample_index: Path, tmp_path_factory) -> Path:
    """An index of the sample corpus with a dense part, by the real small encoder."""
    encoder = minilm()
    out = shutil.copytree(sample_index, tmp_path_factory.mktemp("both") / "sample")
    bm25 = BM25Retriever(out)
    build_dense(bm25.passages(), out, encoder, sources=bm25.manifest.sources, fingerprint=bm25.manifest.fingerprint)
    return out


@pytest.fixture(scope="session")
def dense(both_parts: Path) -> DenseRetriever:
    """Over it."""
    return DenseRetriever(both_parts)
