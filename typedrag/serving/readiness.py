"""Readiness to serve requests: the index is open and the LM answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import dspy
import httpx

from typedrag.errors import LMUnavailable
from typedrag.redaction import without_keys
from typedrag.retrieval import Retriever
from typedrag.serving.service import Service
from typedrag.serving.upkeep import aside

logger = logging.getLogger(__name__)

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


async def states_of(service: Service) -> dict[str, str]:
    """The states of what the programs of a service need."""
    programs = list(service.programs.values())
    searched = [served.program.retriever for served in programs if served.program.retriever is not None]
    return await states(index=map(searches, searched), lm=[_answers(served.lm) for served in programs])


async def states(**checks: Iterable[Awaitable[None]]) -> dict[str, str]:
    """`ok` for each part, or `unavailable` if one of its checks raises."""
    return dict(zip(checks, await asyncio.gather(*map(_all, checks.values())), strict=True))


async def _all(checks: Iterable[Awaitable[None]]) -> str:
    within = [asyncio.wait_for(check, _SECONDS) for check in checks]
    faults = [ended for ended in await asyncio.gather(*within, return_exceptions=True) if ended is not None]
    for fault in faults:
        logger.warning("not ready: %s", without_keys(str(fault) or type(fault).__name__))
    return FAILED if faults else OK


async def searches(retriever: Retriever) -> None:
    """Raise what keeps an index from being searched."""
    await aside(lambda: retriever.search(["ready"], 1))


async def _answers(lm: dspy.LM) -> None:
    """Raise the error that asking its server gives, if any. An LM without an address is not checked."""
    if not (address := lm.kwargs.get("api_base")):
        return
    headers = {"Authorization": f"Bearer {lm.kwargs.get('api_key') or 'EMPTY'}"}
    async with httpx.AsyncClient(timeout=_SECONDS) as client:
        reply = await client.get(f"{address.rstrip('/')}/models", headers=headers)
    if reply.status_code in _REFUSALS or reply.is_server_error:  # a server may lack this path, and still answer
        raise LMUnavailable(f"the LM's server replies with status {reply.status_code}")
