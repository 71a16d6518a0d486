"""The server as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

import typedrag
from typedrag.errors import TypedRAGError
from typedrag.files.text_files import without_half_characters
from typedrag.serving.api import answers, coverage, feedback, openai, page, programs, support
from typedrag.serving.faults import Fault, Refused, fault_of
from typedrag.serving.guard import Guard
from typedrag.serving.mcp import mounted
from typedrag.serving.replies import reply
from typedrag.serving.service import Service

DESCRIPTION = """Answers non-factoid questions over a document collection, by the type of the question.

Where the server has API keys, send yours as `Authorization: Bearer KEY` or `X-API-Key: KEY`."""
_LONGEST_PLACE = 100


def create_app(build: Callable[[], Service]) -> FastAPI:
    """The application.

    Args:
        build: Makes the service, within the event loop that it then belongs to.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = service = build()
        app.state.feedback = feedback.open_feedback(service.settings.feedback)
        async with mounted(app, service):
            yield
            await service.drain()

    app = FastAPI(
        title="typedrag",
        version=typedrag.__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere; /openapi.json says the same
        redoc_url=None,
    )
    app.add_middleware(Guard)
    for module in (answers, coverage, feedback, openai, page, programs, support):
        app.include_router(module.router)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    for kind in (Refused, TypedRAGError, TimeoutError):
        app.add_exception_handler(kind, _failed)
    return app


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = without_half_characters(".".join(str(part) for part in first["loc"] if part != "body"))[:_LONGEST_PLACE]
    return reply(request, Fault(422, "invalid_request", f"{place or 'The body'}: {first['msg']}."))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return reply(request, Fault(error.status_code, "http_error", f"{error.detail}."), error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    return reply(request, fault_of(error))
