"""The server as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

import typedrag
from typedrag.core.errors import TypedRAGError
from typedrag.datasets.feedback import FeedbackFile
from typedrag.files.text_files import drop_half_characters
from typedrag.serving import openai, openai_responses, routes, status
from typedrag.serving.mcp import mount_mcp
from typedrag.serving.middleware import middleware
from typedrag.serving.responses import UNSUPPORTED, Fault, Refused, error_response, to_fault
from typedrag.serving.schema import complete_schema
from typedrag.serving.service import Service

if TYPE_CHECKING:
    from typedrag.serving.tracing import Tracing

DESCRIPTION = """Answers non-factoid questions over a document collection, by the type of the question.

Where the server has API keys, send yours as `Authorization: Bearer KEY` or `X-API-Key: KEY`."""
_LONGEST_PLACE = 100


def create_app(service: Service, start: Callable[[], None] = lambda: None) -> FastAPI:
    """The ASGI application of a server; `start` is called in its event loop."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        start()
        async with mount_mcp(app, service):
            yield
        await service.close()

    routers = [routes.router, openai.router, openai_responses.router, status.program_router, status.router]
    app = application(service, lifespan, routers, "typedrag", DESCRIPTION, service.tracing)
    app.state.readiness = status.Readiness(service, status.ProgramFaults(service))
    app.state.feedback = FeedbackFile(service.settings.feedback) if service.settings.feedback else None
    return app


class Application(FastAPI):
    """An application whose OpenAPI document has what the middleware adds."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        if "securitySchemes" not in document["components"]:
            complete_schema(document, keys=self.state.service.admission.keyring is not None)
        return document


def application(
    service: status.Served,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
    routers: Iterable[APIRouter],
    title: str,
    description: str,
    tracing: Tracing | None = None,
) -> FastAPI:
    """Paths behind the middleware, whose errors are faults."""
    app = Application(
        title=title,
        version=typedrag.__version__,
        description=description,
        lifespan=lifespan,
        middleware=middleware(service.admission),
        generate_unique_id_function=lambda route: route.name,  # as generated clients name their functions
        docs_url=None,  # its page loads scripts from elsewhere; /openapi.json says the same
        redoc_url=None,
        telemetry={
            "tracer_provider": tracing.provider if tracing else None,
            "tracing": tracing is not None,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
            "exclude": lambda scope: scope["path"] in ("/healthz", "/readyz", "/metrics"),
        },
    )
    app.state.service = service
    for router in routers:
        app.include_router(router)
    for kind in (RequestValidationError, HTTPException, Refused, TypedRAGError, TimeoutError):
        app.add_exception_handler(kind, _reply_to_error)
    return app


async def _reply_to_error(request: Request, error: Exception) -> Response:
    match error:
        case RequestValidationError():
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"] if part != "body")
            place = drop_half_characters(place)[:_LONGEST_PLACE]
            message = f"{place or 'The body'}: {first['msg']}."
            code = UNSUPPORTED if first["type"] == UNSUPPORTED else "invalid_request"
            return error_response(request, Fault(422, code, message, param=place))
        case HTTPException():
            return error_response(request, Fault(error.status_code, "http_error", f"{error.detail}."), error.headers)
    return error_response(request, to_fault(error))
