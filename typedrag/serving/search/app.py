"""An index server: opening the index, its ASGI application, and running it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import Response

from typedrag.core.errors import InputError
from typedrag.retrieval import open_retriever
from typedrag.retrieval.opening import brings_index
from typedrag.retrieval.search.remote import BM25Settings, SearchReply, SearchRequest, ServedIndex
from typedrag.serving.app import application
from typedrag.serving.routes import status
from typedrag.serving.search.service import SearchService
from typedrag.serving.server import drain_before_exit
from typedrag.serving.settings import IndexSettings

DESCRIPTION = """Searches an index for programs that run elsewhere, by `--retriever` with the address of this server.

Where the server has API keys, send yours as `Authorization: Bearer KEY` or `X-API-Key: KEY`."""

router = APIRouter(prefix="/v1", tags=["index"])


def open_index(spec: str, index: Path, settings: IndexSettings) -> FastAPI:
    """Open an index with the retriever of a spec, and the application that serves it."""
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


def create_index_app(build: Callable[[], SearchService], settings: IndexSettings) -> FastAPI:
    """The ASGI application of an index server, whose service is built within the running event loop."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = service = build()
        app.state.readiness = status.Readiness(
            service, lambda: status.check_parts(index=[status.search_index(service.retriever)])
        )
        yield

    return application(lifespan, (router, status.router), settings, "typedrag index", DESCRIPTION)


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
