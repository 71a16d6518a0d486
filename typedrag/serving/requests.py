"""Observers are told of every request."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from typedrag.serving.observer import Observer

_LEFT = 499

current_request: ContextVar[str] = ContextVar("current_request", default="")
"""The id of the request that is served; of a question, that of the request which asked it first."""


class Requests:
    """Tells of the requests that pass through.

    Args:
        app: That they go to.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        observer: Observer = scope["app"].state.service.observer
        status, begun = 500, time.monotonic()

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        current_request.set(scope.setdefault("state", {}).setdefault("id", uuid.uuid4().hex))
        try:
            await self._app(scope, receive, sent)
        except asyncio.CancelledError:
            status = _LEFT
            raise
        finally:
            observer.requested(_path(scope), status, time.monotonic() - begun)


def _path(scope: Scope) -> str:
    """That of the route; not what a client has written, unless it is that of a route, which not all routers tell of."""
    if path := getattr(scope.get("route"), "path", ""):
        return str(path)
    known = {getattr(route, "path", "") for route in scope["app"].routes}
    return str(scope["path"]) if scope["path"] in known else "other"
