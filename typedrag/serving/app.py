"""The server as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.telemetry import TelemetryConfig
from opentelemetry.trace import TracerProvider
from starlette.exceptions import HTTPException

import typedrag
from typedrag.errors import TypedRAGError
from typedrag.serving.api import answers, feedback, openai, programs, status
from typedrag.serving.faults import Fault, Refused, fault_of
from typedrag.serving.mcp import mounted
from typedrag.serving.readiness import Readiness
from typedrag.serving.request_ids import RequestIds, request_id
from typedrag.serving.requests import Requests
from typedrag.serving.service import Service
from typedrag.serving.upkeep import aside

logger = logging.getLogger(__name__)

_TO_CLOSE = 8.0
DESCRIPTION = "Answers non-factoid questions over a document collection, by the type of the question."


def create_app(build: Callable[[], Service], tracer_provider: TracerProvider | None = None) -> FastAPI:
    """The application.

    Args:
        build: Makes the service, within the event loop that it then belongs to.
        tracer_provider: Of OpenTelemetry; None for no spans.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = service = build()
        app.state.readiness = Readiness(service)
        app.state.feedback = feedback.open_feedback(service.settings.feedback)
        async with mounted(app, service):
            yield
            await service.drain()
        with suppress(TimeoutError):  # a store of traces may hang
            await asyncio.wait_for(aside(service.observer.close), _TO_CLOSE)

    app = FastAPI(
        title="typedrag",
        version=typedrag.__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        telemetry=_telemetry(tracer_provider),
    )
    for module in (answers, feedback, openai, programs, status):
        app.include_router(module.router)
    app.add_middleware(Requests)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    for kind in (Refused, TypedRAGError, TimeoutError, Exception):
        app.add_exception_handler(kind, _failed)
    app.add_middleware(RequestIds)
    return app


def _telemetry(provider: TracerProvider | None) -> TelemetryConfig:
    """A span a request, but for those of who watches the server."""
    return {
        "tracer_provider": provider,
        "tracing": provider is not None,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": False,
        "exclude": lambda scope: scope["path"] in ("/healthz", "/readyz", "/metrics"),
    }


def reply(request: Request, fault: Fault) -> JSONResponse:
    """A fault as a reply."""
    request.app.state.service.observer.refused(fault.status, fault.code)
    headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
    return JSONResponse(fault.to_dict(request_id(request)), fault.status, headers)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    return reply(request, Fault(422, "invalid_request", f"{place or 'The body'}: {first['msg']}."))


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return reply(request, Fault(error.status_code, "http_error", f"{error.detail}."))


async def _failed(request: Request, error: Exception) -> JSONResponse:
    fault = fault_of(error)
    if fault.status == 500:
        logger.error("request %s failed", request_id(request), exc_info=error)
    return reply(request, fault)
