"""Faults as replies."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import JSONResponse

from typedrag.serving.faults import Fault
from typedrag.serving.logs import request_line


def reply(request: Request, fault: Fault, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """A fault as a reply, which the metrics and the log hear of.

    Args:
        request: That it ends.
        fault: As the client is told.
        headers: Of the reply, besides `Retry-After`.
    """
    request.app.state.service.observer.refused(fault.status, fault.code)
    line = request_line()
    line.error = fault.code
    wait = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
    return JSONResponse(fault.to_dict(line.id), fault.status, {**(headers or {}), **wait})
