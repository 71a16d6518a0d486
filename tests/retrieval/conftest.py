import shutil
from pathlib import Path

import pytest

from tests.retrieval.encoders import minilm, save_encoder
from typedrag.retrieval import DenseRetriever, embed_index


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> str:
    """The folder of an encoder of random weights."""
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def both_parts(sample_index: Path, tmp_path_factory) -> Path:
    """An index of the sample corpus with a dense part, by the real small encoder."""
    encoder = minilm()
    out = shutil.copytree(sample_index, tmp_path_factory.mktemp("both") / "sample")
    embed_index(out, encoder)
    return out


@pytest.fixture(scope="session")
def dense(both_parts: Path) -> DenseRetriever:
    """Over it."""
    return DenseRetriever(both_parts)
