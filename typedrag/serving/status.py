"""`/healthz`, `/readyz`, `/metrics`, `/v1/program` and the web page: the state of the server, and what it serves."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated, Protocol

import dspy
import httpx
from fastapi import APIRouter, Header, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles

from typedrag.core.errors import LMUnavailable
from typedrag.core.redaction import without_keys
from typedrag.retrieval import Retriever
from typedrag.serving.service import Service, run_in_background
from typedrag.serving.settings import Settings

logger = logging.getLogger(__name__)

router, program_router = APIRouter(tags=["status"]), APIRouter()

OK, FAILED = "ok", "unavailable"
_SECONDS = 5.0
_REFUSALS = (401, 403)


class Watched(Protocol):
    """A service that tells if it is being stopped, and if it refuses all requests, since the LM is out of order."""

    @property
    def stopping(self) -> bool: ...

    @property
    def refusing(self) -> bool: ...


class Readiness:
    """Checks what a service needs. A result is kept for some seconds, so that probes cost little.

    `look` gives the state of each part, such as the index.
    """

    def __init__(self, service: Watched, look: Callable[[], Awaitable[dict[str, str]]], keep: float = _SECONDS) -> None:
        self._service, self._look, self._keep = service, look, keep
        self._looking = asyncio.Lock()
        self._seen: dict[str, str] = {}
        self._at = float("-inf")

    async def parts(self) -> dict[str, str]:
        """`ok` or `unavailable` for each of `server`, which refuses requests while it stops, `index` and `lm`."""
        async with self._looking:
            if time.monotonic() - self._at >= self._keep:
                self._seen, self._at = await self._look(), time.monotonic()
        server = FAILED if self._service.stopping else OK
        return {"server": server, **self._seen, **({"lm": FAILED} if self._service.refusing else {})}


async def check_programs(service: Service) -> dict[str, str]:
    programs = list(service.programs.values())
    searched = [loaded.program.retriever for loaded in programs if loaded.program.retriever is not None]
    calls = [_ask_lm(loaded.lm) for loaded in programs]
    index, lm = await asyncio.gather(check_part(map(search_index, searched)), check_part(calls))
    return {"index": index, "lm": lm}


async def check_part(checks: Iterable[Awaitable[None]]) -> str:
    """`ok`, or `unavailable` if one of the checks of a part raises."""
    within = [asyncio.wait_for(check, _SECONDS) for check in checks]
    faults = [ended for ended in await asyncio.gather(*within, return_exceptions=True) if ended is not None]
    for fault in faults:
        logger.warning("not ready: %s", without_keys(str(fault) or type(fault).__name__))
    return FAILED if faults else OK


async def search_index(retriever: Retriever) -> None:
    await run_in_background(lambda: retriever.search(["ready"], 1))


async def _ask_lm(lm: dspy.LM) -> None:
    """Raise the error that asking its server gives, if any. An LM without an address is not checked."""
    if not (address := lm.kwargs.get("api_base")):
        return
    headers = {"Authorization": f"Bearer {lm.kwargs.get('api_key') or 'EMPTY'}"}
    async with httpx.AsyncClient(timeout=_SECONDS) as client:
        reply = await client.get(f"{address.rstrip('/')}/models", headers=headers)
    if reply.status_code in _REFUSALS or reply.is_server_error:  # a server may lack this path, and still answer
        raise LMUnavailable(f"the LM's server replies with status {reply.status_code}")


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


_HEADERS = {"Cache-Control": "no-cache"}
_FOLDER = Path(__file__).parent / "page"
_FILES = StaticFiles(directory=_FOLDER)


@program_router.get("/v1/program", tags=["programs"])
async def program(request: Request, name: str = "") -> JSONResponse:
    """A served program: its name, version, fingerprint, LM and scores; the default program if none is named.

    If its last reload failed, `reload_error` says why.
    """
    service: Service = request.app.state.service
    loaded = service.program(name)
    return JSONResponse({**loaded.to_dict(), "reload_error": service.reload_errors.get(loaded.name, "")})


@program_router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
def page(request: Request) -> Response:
    """The page, with feedback switched on or off."""
    settings = _settings(request)
    html = (_FOLDER / "index.html").read_text("utf-8")
    if settings.feedback:
        html = html.replace('data-feedback="off"', 'data-feedback="on"', 1)
    return HTMLResponse(html, headers=_HEADERS)


@program_router.api_route("/static/{name}", methods=["GET", "HEAD"], include_in_schema=False)
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
