"""`/v1/program` and `/`: a served program, and the web page for people to ask on."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles

from typedrag.serving.service import Service
from typedrag.serving.settings import Settings

router = APIRouter()

_HEADERS = {"Cache-Control": "no-cache"}
"""Added to the headers of all replies, whose policy lets the page load and run only its own files."""
_FOLDER = Path(__file__).parents[1] / "page"
_FILES = StaticFiles(directory=_FOLDER)


@router.get("/v1/program", tags=["programs"])
async def program(request: Request, name: str = "") -> JSONResponse:
    """A served program: its name, version, fingerprint, LM and scores; the default program if none is named.

    If its last reload failed, `reload_error` says why.
    """
    service: Service = request.app.state.service
    loaded = service.program(name)
    return JSONResponse({**loaded.to_dict(), "reload_error": service.reload_errors.get(loaded.name, "")})


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
def page(request: Request) -> Response:
    """The page, with feedback switched on or off."""
    settings = _settings(request)
    html = (_FOLDER / "index.html").read_text("utf-8")
    if settings.feedback:
        html = html.replace('data-feedback="off"', 'data-feedback="on"', 1)
    return HTMLResponse(html, headers=_HEADERS)


@router.api_route("/static/{name}", methods=["GET", "HEAD"], include_in_schema=False)
async def static(name: str, request: Request) -> Response:
    """A file of the page."""
    _settings(request)
    reply = await _FILES.get_response(name, request.scope)
    reply.headers.update(_HEADERS)
    return reply


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.service.settings
    if not settings.page:
        raise HTTPException(404)
    return settings
