"""Replies with faults."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import JSONResponse

from typedrag.serving.faults import Fault
from typedrag.serving.logs import request_line


def reply(request: Request, fault: Fault, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The reply of a fault, which is also counted and logged.

    Args:
        request: The request that failed.
        fault: The error that the client sees.
        headers: Headers of the reply, besides `Retry-After`.
    """
    request.app.state.service.observer.refused(fault.status, fault.code)
    line = request_line()
    line.error = fault.code
    wait = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
    return JSONResponse(fault.to_dict(line.id), fault.status, {**(headers or {}), **wait})
