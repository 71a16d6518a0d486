"""An index server as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import Response

from typedrag.retrieval.search.remote import BM25Settings, SearchReply, SearchRequest, ServedIndex
from typedrag.serving.app import application
from typedrag.serving.routes import status
from typedrag.serving.search.service import IndexSettings, SearchService

DESCRIPTION = """Searches an index for programs that run elsewhere, by `--retriever` with the address of this server.

Where the server has API keys, send yours as `Authorization: Bearer KEY` or `X-API-Key: KEY`."""

router = APIRouter(prefix="/v1", tags=["index"])


def create_index_app(build: Callable[[], SearchService], settings: IndexSettings) -> FastAPI:
    """The ASGI application of an index server.

    Args:
        build: The function that makes the service, called within the running event loop.
        settings: Those of the service.
    """

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
    reply = await service.search(body)
    return Response(reply.model_dump_json(), media_type="application/json")


@router.get("/index")
async def index(request: Request, bm25: Annotated[BM25Settings, Query()]) -> ServedIndex:
    """Describe the index and its retriever, with the given settings of BM25: identity, counts and manifest."""
    service: SearchService = request.app.state.service
    return await service.served(bm25)
