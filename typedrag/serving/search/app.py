"""An index server: opening the index, its ASGI application, and running it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import Response

from typedrag.errors import InputError
from typedrag.retrieval import IndexRetriever, open_retriever
from typedrag.retrieval.opening import brings_index
from typedrag.retrieval.search.remote import BM25Settings, SearchReply, SearchRequest, ServedIndex
from typedrag.serving.api import status
from typedrag.serving.app import application
from typedrag.serving.readiness import Readiness, searches, states
from typedrag.serving.run import Serving, run_app
from typedrag.serving.search.service import IndexSettings, SearchService

DESCRIPTION = """Searches an index for programs that run elsewhere, by `--retriever` with the address of this server.

Where the server has API keys, send yours as `Authorization: Bearer KEY` or `X-API-Key: KEY`."""

router = APIRouter(prefix="/v1", tags=["index"])


def open_index(spec: str, index: Path, settings: IndexSettings) -> Serving:
    """Open an index with the retriever of a spec; returns what serves it.

    Raises:
        InputError: If the spec is no retriever, brings an index of its own, or reads labels.
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


def create_index_app(build: Callable[[], SearchService]) -> FastAPI:
    """The ASGI application of an index server, whose service is built within the running event loop."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = service = build()
        app.state.readiness = Readiness(service, lambda: states(index=[searches(service.retriever)]))
        yield
        await service.drain()

    return application(lifespan, (router, status.router), "typedrag index", DESCRIPTION)


@router.post("/search", responses={200: {"model": SearchReply}})
async def search(body: SearchRequest, request: Request) -> Response:
    """Find the passages for each query, best first."""
    service: SearchService = request.app.state.service
    return Response(await service.search(body), media_type="application/json")


@router.get("/index")
async def index(request: Request, bm25: Annotated[BM25Settings, Query()]) -> ServedIndex:
    """Describe the index and its retriever, with the given settings of BM25: identity, counts and manifest."""
    service: SearchService = request.app.state.service
    return await service.served(bm25)
