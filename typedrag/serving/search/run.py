"""Opens an index and serves it."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI

from typedrag.errors import InputError
from typedrag.retrieval import open_retriever
from typedrag.retrieval.opening import brings_index
from typedrag.serving.search.app import create_index_app
from typedrag.serving.search.service import IndexSettings, SearchService
from typedrag.serving.server import drain_before_exit


def open_index(spec: str, index: Path, settings: IndexSettings) -> FastAPI:
    """Open an index with the retriever of a spec, and the application that serves it.

    Raises:
        InputError: If the spec is no retriever, the address of another index server, or reads labels.
        RetrievalError: If the index lacks a part or cannot be used.
    """
    if brings_index(spec):
        raise InputError(f"'{spec}' has its own index", "Name what searches yours: bm25, dense, hybrid or auto")
    if spec == "gold":
        raise InputError("gold gives passages that a dataset labels, and a server has none", "Name another retriever")
    retriever = open_retriever(spec, index)

    def build() -> SearchService:
        service = SearchService(retriever, settings)
        drain_before_exit(service)
        return service

    return create_index_app(build, settings)
