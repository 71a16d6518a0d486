"""Request ids, the line of each request in the log, and the security headers of all replies."""

from __future__ import annotations

import logging
import re
import time
import uuid
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from typedrag.serving.faults import fault_of
from typedrag.serving.logs import RequestLine, set_line
from typedrag.serving.observer import Observer
from typedrag.serving.replies import reply

logger = logging.getLogger(__name__)

_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_LEFT = 499
_METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The headers of all replies. The page complies: no inline script or style, and nothing from elsewhere."""


class Requests:
    """Gives every request an id, logs it, and replies even if the application fails.

    Args:
        app: The application behind it.
        log_questions: Whether the log has the text of questions.
    """

    def __init__(self, app: ASGIApp, *, log_questions: bool) -> None:
        self._app = app
        self._log_questions = log_questions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and log it."""
        client_id = Headers(scope=scope).get("x-request-id", "")
        line = RequestLine(client_id if _ID.fullmatch(client_id) else uuid.uuid4().hex)
        line.method = scope["method"] if scope["method"] in _METHODS else "other"
        scope.setdefault("state", {})["id"] = line.id
        set_line(line)  # in the context of this request's task only
        begun = time.perf_counter()
        whole = False

        async def send_on(message: Message) -> None:
            nonlocal whole
            if message["type"] == "http.response.start":
                line.status = message["status"]
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = line.id
                if "Location" in headers:
                    headers["Location"] = _within(headers["Location"])
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            elif not message.get("more_body"):
                whole = True
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except Exception as error:
            line.error = fault_of(error).code
            if line.status:
                raise  # a reply that has begun can only be cut off, which uvicorn does and logs
            logger.error("request %s failed", line.id, exc_info=error)
            await reply(Request(scope), fault_of(error))(scope, receive, send_on)
        finally:
            line.path = _path(scope)
            line.seconds = time.perf_counter() - begun
            line.error = line.error or ("" if whole else "client_left")
            observer: Observer = scope["app"].state.service.observer
            observer.requested(line.path or "other", line.status or _LEFT, line.seconds)
            line.write(with_questions=self._log_questions)


def _path(scope: Scope) -> str:
    """The path of the route, or of the request if it is a known one; never text that a stranger has written."""
    if path := getattr(scope.get("route"), "path", ""):
        return str(path)
    known = {getattr(route, "path", "") for route in scope["app"].routes}
    return str(scope["path"]) if scope["path"] in known else ""


def _within(address: str) -> str:
    """The target of a redirect without the server's address, since clients may know the server by another one."""
    parts = urlsplit(address)
    path = "/" + parts.path.lstrip("/")  # two slashes would lead to another host
    return f"{path}?{parts.query}" if parts.query else path
