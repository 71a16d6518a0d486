"""`/healthz`, `/readyz` and `/metrics`: the state of the server, for monitoring."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Protocol

import dspy
import httpx
from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response

from typedrag.core.errors import LMUnavailable
from typedrag.core.redaction import without_keys
from typedrag.retrieval import Retriever
from typedrag.serving.service import Service, run_in_background

logger = logging.getLogger(__name__)

router = APIRouter(tags=["status"])

OK, FAILED = "ok", "unavailable"
_SECONDS = 5.0
_REFUSALS = (401, 403)


class Watched(Protocol):
    """A service that tells if it is being stopped, and if the LM is out of order."""

    @property
    def stopping(self) -> bool:
        """True if it takes no more requests."""
        ...

    @property
    def refusing(self) -> bool:
        """True if it refuses all requests, since the LM is out of order."""
        ...


class Readiness:
    """Checks what a service needs. A result is kept for some seconds, so that probes cost little.

    Args:
        service: The service that is watched.
        look: Gives the states of its parts, such as the index.
        keep: The seconds for which a result is kept.
    """

    def __init__(self, service: Watched, look: Callable[[], Awaitable[dict[str, str]]], keep: float = _SECONDS) -> None:
        self._service = service
        self._look = look
        self._keep = keep
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
    """The states of what the programs of a service need."""
    programs = list(service.programs.values())
    searched = [loaded.program.retriever for loaded in programs if loaded.program.retriever is not None]
    return await check_parts(index=map(search_index, searched), lm=[_ask_lm(loaded.lm) for loaded in programs])


async def check_parts(**checks: Iterable[Awaitable[None]]) -> dict[str, str]:
    """`ok` for each part, or `unavailable` if one of its checks raises."""
    return dict(zip(checks, await asyncio.gather(*map(_check_all, checks.values())), strict=True))


async def _check_all(checks: Iterable[Awaitable[None]]) -> str:
    within = [asyncio.wait_for(check, _SECONDS) for check in checks]
    faults = [ended for ended in await asyncio.gather(*within, return_exceptions=True) if ended is not None]
    for fault in faults:
        logger.warning("not ready: %s", without_keys(str(fault) or type(fault).__name__))
    return FAILED if faults else OK


async def search_index(retriever: Retriever) -> None:
    """Raise what keeps an index from being searched."""
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
