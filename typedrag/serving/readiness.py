"""Readiness to answer questions: the index is open and the LM answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable

import dspy
import httpx

from typedrag.errors import LMUnavailable
from typedrag.redaction import without_keys
from typedrag.serving.served import Served
from typedrag.serving.service import Service
from typedrag.serving.upkeep import aside

logger = logging.getLogger(__name__)

OK, FAILED = "ok", "unavailable"
_SECONDS = 5.0
_REFUSALS = (401, 403)


class Readiness:
    """Checks the index and the LM of each program. A result is kept for some seconds, so that probes cost little.

    Args:
        service: The service with the programs.
        keep: The seconds for which a result is kept.
    """

    def __init__(self, service: Service, keep: float = _SECONDS) -> None:
        self._service = service
        self._keep = keep
        self._looking = asyncio.Lock()
        self._seen: dict[str, str] = {}
        self._at = float("-inf")

    async def parts(self) -> dict[str, str]:
        """`ok` or `unavailable` for each of `server`, which refuses questions while it stops, `index` and `lm`."""
        async with self._looking:
            if time.monotonic() - self._at >= self._keep:
                programs = list(self._service.programs.values())
                index, lm = await asyncio.gather(
                    _all(_searches(served) for served in programs), _all(_answers(served.lm) for served in programs)
                )
                self._seen, self._at = {"index": index, "lm": lm}, time.monotonic()
        server = FAILED if self._service.stopping else OK
        lm = FAILED if self._service.refusing else self._seen["lm"]
        return {"server": server, "index": self._seen["index"], "lm": lm}


async def _all(checks: Iterable[Awaitable[None]]) -> str:
    within = [asyncio.wait_for(check, _SECONDS) for check in checks]
    faults = [ended for ended in await asyncio.gather(*within, return_exceptions=True) if ended is not None]
    for fault in faults:
        logger.warning("not ready: %s", without_keys(str(fault) or type(fault).__name__))
    return FAILED if faults else OK


async def _searches(served: Served) -> None:
    """Raise the error that searching its index gives, if any."""
    if (retriever := served.program.retriever) is not None:
        await aside(lambda: retriever.search(["ready"], 1))


async def _answers(lm: dspy.LM) -> None:
    """Raise the error that asking its server gives, if any; an LM without an address is not checked."""
    if not (address := lm.kwargs.get("api_base")):
        return
    headers = {"Authorization": f"Bearer {lm.kwargs.get('api_key') or 'EMPTY'}"}
    async with httpx.AsyncClient(timeout=_SECONDS) as client:
        reply = await client.get(f"{str(address).rstrip('/')}/models", headers=headers)
    if reply.status_code in _REFUSALS or reply.is_server_error:  # a server may lack this path, and still answer
        raise LMUnavailable(f"the LM's server replies with status {reply.status_code}")
