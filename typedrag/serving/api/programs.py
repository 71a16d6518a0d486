"""What is served."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from typedrag.serving.service import Service

router = APIRouter(tags=["programs"])


@router.get("/v1/program")
async def program(request: Request, name: str = "") -> JSONResponse:
    """A program that is served: its name, version, fingerprint, LM and scores; the default one if none is named.

    Where it should be another by now, `reload_error` says why it is not.
    """
    service: Service = request.app.state.service
    served = service.program(name)
    return JSONResponse({**served.to_dict(), "reload_error": service.reload_errors.get(served.name, "")})
