from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from tests.milvus import MilvusServer, milvus_server
from typedrag.datasets.sample import PASSAGES
from typedrag.retrieval import DenseRetriever
from typedrag.retrieval.milvus.address import MilvusAddress
from typedrag.retrieval.milvus.building import build_collection
from typedrag.retrieval.milvus.collection import CollectionManifest


@pytest.fixture(scope="session")
def milvus(tmp_path_factory) -> MilvusServer:
    """A server that is started once."""
    with milvus_server(tmp_path_factory.mktemp("milvus")) as server:
        yield server


@pytest.fixture(scope="session")
def build() -> Callable[..., CollectionManifest]:
    """Builds an index, without showing its progress."""

    def build(sources, spec, **options):
        return build_collection(
            sources, MilvusAddress.parse(spec), lambda what: nullcontext(lambda rows: None), **options
        )

    return build


@pytest.fixture(scope="session")
def sample(milvus, build, dense: DenseRetriever) -> str:
    """The address of the sample corpus with both parts."""
    spec = f"milvus:{milvus.url}/sample"
    build([PASSAGES], spec, encoder=dense.encoder)
    return spec
