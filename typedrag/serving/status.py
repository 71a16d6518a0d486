"""`/healthz`, `/readyz`, `/metrics`, `/v1/program` and the web page: the state of the server, and what it serves."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Protocol

import httpx
from fastapi import APIRouter, Header, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from typing_extensions import TypedDict

from typedrag.core.call_context import use_context
from typedrag.core.errors import LMUnavailable, first_line
from typedrag.core.proxies import find_proxy
from typedrag.core.redaction import without_keys
from typedrag.retrieval import Retriever
from typedrag.serving.admission import Admission
from typedrag.serving.monitoring import Metrics
from typedrag.serving.programs import LoadedProgram, ProgramDetails
from typedrag.serving.schema import replies
from typedrag.serving.service import Service, limit_time, run_in_background
from typedrag.serving.settings import Settings

logger = logging.getLogger(__name__)

router, program_router = APIRouter(tags=["status"]), APIRouter()

OK, FAILED = "ok", "unavailable"
_SECONDS = 5.0
_ANSWER_SECONDS = 30.0
_PROMPT = "Answer yes or no, in one word: is bread baked?"


class Served(Protocol):
    """A service behind HTTP, which tells if it refuses all questions, since the LM is out of order."""

    admission: Admission
    metrics: Metrics

    @property
    def refusing(self) -> bool: ...


class Readiness:
    """Checks what a service needs. A result is kept for some seconds, so that probes cost little.

    `find_faults` gives the fault of each part, such as the index; empty if there is none.
    """

    def __init__(
        self, service: Served, find_faults: Callable[[], Awaitable[dict[str, str]]], keep: float = _SECONDS
    ) -> None:
        self._service, self._find_faults, self._keep = service, find_faults, keep
        self._looking = asyncio.Lock()
        self._faults: dict[str, str] = {}
        self._at = float("-inf")

    async def parts(self) -> dict[str, str]:
        """`ok` or `unavailable` for each of `server`, which refuses requests while it stops, `index` and `lm`."""
        if self._service.admission.stopping:
            return {"server": FAILED}
        async with self._looking:
            if time.monotonic() - self._at >= self._keep:
                before, self._faults = self._faults, await self._find_faults()
                self._at = time.monotonic()
                for part, fault in self._faults.items():
                    if fault and fault != before.get(part):  # said once, not at each probe
                        logger.warning("not ready: %s: %s", part, fault)
        parts = {part: FAILED if fault else OK for part, fault in self._faults.items()}
        return {"server": OK, **parts, **({"lm": FAILED} if self._service.refusing else {})}


class ProgramFaults:
    """Finds faults of the programs' indexes and LMs.

    An LM has to answer once, by a call like those of questions: nothing else shows that its key is let in. After that
    it is enough that its server can be reached, which costs no call.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._answered: set[tuple[str, datetime]] = set()

    async def __call__(self) -> dict[str, str]:
        if self._service.breaker.open:
            self._answered.clear()
        programs = list(self._service.programs.values())
        searched = [loaded.program.retriever for loaded in programs if loaded.program.retriever is not None]
        index, lm = await asyncio.gather(
            find_fault(map(search_index, searched)), find_fault(map(self._ask_lm, programs))
        )
        return {"index": index, "lm": lm}

    async def _ask_lm(self, loaded: LoadedProgram) -> None:
        lm, version = loaded.lm, (loaded.name, loaded.since)
        if address := lm.kwargs.get("api_base"):
            headers = {"Authorization": f"Bearer {lm.kwargs.get('api_key') or 'EMPTY'}"}
            way = None if find_proxy(address) else httpx.AsyncHTTPTransport()
            async with httpx.AsyncClient(transport=way, timeout=None) as client:
                reply = await limit_time(_SECONDS, client.get(f"{address.rstrip('/')}/models", headers=headers))
            if reply.is_server_error:  # a gateway may lack this path, or have it for others, and still answer
                raise LMUnavailable(f"the LM's server replies with status {reply.status_code}")
        if version not in self._answered:
            with use_context(fresh=True):
                await limit_time(_ANSWER_SECONDS, lm.acall(_PROMPT))
            self._answered.add(version)


async def find_fault(checks: Iterable[Awaitable[None]]) -> str:
    """The errors that the checks of a part raise, in words; empty if there are none."""
    faults = [ended for ended in await asyncio.gather(*checks, return_exceptions=True) if ended is not None]
    return "; ".join(without_keys(first_line(fault)) for fault in faults if isinstance(fault, Exception))


async def search_index(retriever: Retriever) -> None:
    await limit_time(_SECONDS, run_in_background(lambda: retriever.search(["ready"], 1)))


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """Tell that the process is alive."""
    return {"status": "ok"}


class Parts(TypedDict):
    """The readiness for questions, and that of each part."""

    status: Literal["ready", "not_ready"]
    parts: dict[str, Literal["ok", "unavailable"]]


_TEXT = {"schema": {"type": "string"}}
_OPENMETRICS = "application/openmetrics-text"
_PARTS = {"model": Parts, "content": {_OPENMETRICS: _TEXT}}


@router.get("/readyz", response_class=JSONResponse, responses={200: _PARTS, 503: _PARTS})
async def ready(request: Request) -> Response:
    """Tell whether questions can be answered: the server is not stopping, the index is open, and the LM answers.

    Prometheus gets a page without metrics: the status is what it needs.
    """
    readiness: Readiness = request.app.state.readiness
    parts = await readiness.parts()
    is_ready = set(parts.values()) == {OK}
    status = 200 if is_ready else 503
    if _OPENMETRICS in request.headers.get("accept", ""):
        return Response("# EOF\n", status, headers={"Content-Type": f"{_OPENMETRICS}; version=1.0.0; charset=utf-8"})
    return JSONResponse({"status": "ready" if is_ready else "not_ready", "parts": parts}, status)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": _TEXT, _OPENMETRICS: _TEXT}}},
)
async def metrics(request: Request, accept: Annotated[str, Header()] = "") -> Response:
    """The server's metrics in Prometheus' format."""
    service: Service = request.app.state.service
    body, content_type = service.metrics.page(accept)
    return Response(body, headers={"Content-Type": content_type})


_HEADERS = {"Cache-Control": "no-cache"}
_FOLDER = Path(__file__).parent / "page"
_FILES = StaticFiles(directory=_FOLDER)


class ProgramReply(ProgramDetails):
    """A served program, whether it is being loaded again, and why its last reload failed, if it did."""

    reloading: bool
    reload_error: str


@program_router.get("/v1/program", tags=["programs"], responses=replies(ProgramReply, 404))
async def program(request: Request, name: str = "") -> ProgramReply:
    """A served program: its name, version, fingerprint, LM and scores; the default program if none is named.

    While another version is loaded and tried, it is `reloading`. If its last reload failed, `reload_error` says why.
    """
    service: Service = request.app.state.service
    loaded = service.program(name)
    return {
        **loaded.to_dict(),
        "reloading": service.reloading == loaded.name,
        "reload_error": service.reload_errors.get(loaded.name, ""),
    }


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
