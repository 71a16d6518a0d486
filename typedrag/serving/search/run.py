"""Opens an index and serves it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from typedrag.errors import InputError
from typedrag.retrieval import IndexRetriever, open_retriever
from typedrag.retrieval.opening import brings_index
from typedrag.serving.run import Serving, run_app
from typedrag.serving.search.app import create_index_app
from typedrag.serving.search.service import IndexSettings, SearchService


def open_index(spec: str, index: Path, settings: IndexSettings) -> Serving:
    """Open an index with the retriever of a spec; returns what serves it.

    Raises:
        InputError: If the spec is no retriever, the address of another index server, or reads labels.
        RetrievalError: If the index lacks a part or cannot be used.
    """
    if brings_index(spec):
        raise InputError(f"'{spec}' has its own index", "Name what searches yours: bm25, dense, hybrid or auto")
    if spec == "gold":
        raise InputError("gold gives passages that a dataset labels, and a server has none", "Name another retriever")
    return partial(_run, open_retriever(spec, index), settings)


def _run(
    retriever: IndexRetriever, settings: IndexSettings, listener: socket.socket, on_ready: Callable[[], None]
) -> None:
    def build() -> SearchService:
        asyncio.get_running_loop().call_soon(on_ready)
        return SearchService(retriever, settings)

    run_app(create_index_app(build), settings, listener)
