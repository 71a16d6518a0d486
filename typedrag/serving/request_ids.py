"""By which logs, traces and feedback name a request."""

from __future__ import annotations

import uuid

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send


def request_id(request: Request) -> str:
    """The id of a request."""
    return str(request.state.id)


class RequestIds:
    """Gives each request an id, and tells it in the reply."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = scope.setdefault("state", {})["id"] = uuid.uuid4().hex

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-ID"] = request
            await send(message)

        await self._app(scope, receive, send_with_id)
