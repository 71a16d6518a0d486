"""The server as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.telemetry import TelemetryConfig
from opentelemetry.trace import TracerProvider
from starlette.exceptions import HTTPException

import typedrag
from typedrag.errors import TypedRAGError
from typedrag.files.text_files import without_half_characters
from typedrag.serving.api import answers, coverage, feedback, openai, page, programs, status, support
from typedrag.serving.faults import Fault, Refused, fault_of
from typedrag.serving.guard import Guard
from typedrag.serving.mcp import mounted
from typedrag.serving.readiness import Readiness, states_of
from typedrag.serving.replies import reply
from typedrag.serving.service import Service

DESCRIPTION = """Answers non-factoid questions over a document collection, by the type of the question.

Where the server has API keys, send yours as `Authorization: Bearer KEY` or `X-API-Key: KEY`."""
_LONGEST_PLACE = 100


def create_app(build: Callable[[], Service], tracer_provider: TracerProvider | None = None) -> FastAPI:
    """The ASGI application of the server.

    Args:
        build: Builds the service, within the event loop that it then belongs to.
        tracer_provider: OpenTelemetry's provider; None for no spans.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = service = build()
        app.state.readiness = Readiness(service, lambda: states_of(service))
        app.state.feedback = feedback.open_feedback(service.settings.feedback)
        async with mounted(app, service):
            yield
            await service.drain()
        await service.close()

    modules = (answers, coverage, feedback, openai, page, programs, status, support)
    return application(lifespan, [module.router for module in modules], "typedrag", DESCRIPTION, tracer_provider)


def application(
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
    routers: Iterable[APIRouter],
    title: str,
    description: str,
    tracer_provider: TracerProvider | None = None,
) -> FastAPI:
    """Paths behind the guard, whose errors are faults.

    Args:
        lifespan: Sets the state's `service`, whose settings and observer the guard reads, and its `readiness`.
        routers: Of the paths.
        title: Of the schema.
        description: Of the schema.
        tracer_provider: Of OpenTelemetry; None for no spans.
    """
    app = FastAPI(
        title=title,
        version=typedrag.__version__,
        description=description,
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere; /openapi.json says the same
        redoc_url=None,
        telemetry=_telemetry(tracer_provider),
    )
    app.add_middleware(Guard)
    for router in routers:
        app.include_router(router)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    for kind in (Refused, TypedRAGError, TimeoutError):
        app.add_exception_handler(kind, _failed)
    return app


def _telemetry(provider: TracerProvider | None) -> TelemetryConfig:
    """FastAPI's settings for a span per request, except for the paths of monitoring."""
    return {
        "tracer_provider": provider,
        "tracing": provider is not None,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": False,
        "exclude": lambda scope: scope["path"] in ("/healthz", "/readyz", "/metrics"),
    }


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
