"""`/healthz`, `/readyz` and `/metrics`: the state of the server, for monitoring."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response

from typedrag.serving.readiness import OK, Readiness
from typedrag.serving.service import Service

router = APIRouter(tags=["status"])


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """Tell that the process is alive."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {}})
async def ready(request: Request) -> JSONResponse:
    """Tell whether questions can be answered: the server is not stopping, the index is open, and the LM answers."""
    readiness: Readiness = request.app.state.readiness
    parts = await readiness.parts()
    is_ready = set(parts.values()) == {OK}
    return JSONResponse({"status": "ready" if is_ready else "not_ready", "parts": parts}, 200 if is_ready else 503)


@router.get("/metrics", response_class=Response)
async def metrics(request: Request, accept: Annotated[str, Header()] = "") -> Response:
    """The server's metrics in Prometheus' format."""
    service: Service = request.app.state.service
    body, content_type = service.metrics.page(accept)
    return Response(body, headers={"Content-Type": content_type})
