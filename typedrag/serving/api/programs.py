"""`/v1/program`: a served program."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from typedrag.serving.service import Service

router = APIRouter(tags=["programs"])


@router.get("/v1/program")
async def program(request: Request, name: str = "") -> JSONResponse:
    """A served program: its name, version, fingerprint, LM and scores; the default program if none is named.

    If its last reload failed, `reload_error` says why.
    """
    service: Service = request.app.state.service
    served = service.program(name)
    return JSONResponse({**served.to_dict(), "reload_error": service.reload_errors.get(served.name, "")})
