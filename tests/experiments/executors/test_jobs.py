from __future__ import annotations

from pathlib import Path

import pytest

from typedrag.experiments.executors.jobs import index_for

ADDRESSES = ["http://localhost:8010", "milvus:http://localhost:19530/wiki"]


@pytest.mark.parametrize("retriever", ADDRESSES)
def test_workers_get_no_index_beside_an_address_of_one(retriever, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_INDEX", "/indexes/mine")
    assert index_for(retriever, None) is None


@pytest.mark.parametrize("retriever", [None, "bm25"])
def test_workers_get_the_index_of_the_environment(retriever, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_INDEX", "/indexes/mine")
    assert index_for(retriever, None) == Path("/indexes/mine")
    assert index_for(retriever, Path("/indexes/other")) == Path("/indexes/other")
