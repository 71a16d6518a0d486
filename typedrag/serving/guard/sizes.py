"""Limits on the sizes of requests; a body is read up to its limit before it is passed on."""

from __future__ import annotations

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from typedrag.serving.faults import Fault, Refused
from typedrag.serving.replies import reply

HEAD_BYTES = 16_384
"""The most bytes of a request's target and headers together."""
INCOMPLETE = Fault(408, "incomplete", "The request did not come whole in time.")
LONG_HEAD = Fault(431, "head_too_large", f"A request's target and headers have {HEAD_BYTES:,} bytes at most.")


class Sizes:
    """Refuses requests that are too large, even if they do not declare their length.

    Args:
        app: The application behind it.
        most: The most bytes of a body.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, then pass the request on."""
        request = Request(scope)
        head = len(scope["raw_path"]) + len(scope["query_string"])
        if head + sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_BYTES:
            return await reply(request, LONG_HEAD)(scope, receive, send)
        if "content-length" not in request.headers and "transfer-encoding" not in request.headers:
            return await self._app(scope, receive, send)
        try:
            body = await self._read(request, receive)
        except Refused as refused:
            return await reply(request, refused.fault)(scope, receive, send)
        unread = [body]

        async def receive_again() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await receive()

        return await self._app(scope, receive_again, send)

    async def _read(self, request: Request, receive: Receive) -> bytes:
        too_large = Refused(Fault(413, "too_large", f"A request's body has {self._most:,} bytes at most."))
        if int(request.headers.get("content-length", 0)) > self._most:
            raise too_large
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(INCOMPLETE)
            body += message.get("body", b"")
            if len(body) > self._most:
                raise too_large
            if not message.get("more_body"):
                return bytes(body)
