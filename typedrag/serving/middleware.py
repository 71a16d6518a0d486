"""The middleware between strangers and the programs: ids, log, headers, keys, rates, sizes and times of requests."""

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from typedrag.core.call_context import use_context
from typedrag.serving.admission import RATE_HEADERS, Admission
from typedrag.serving.monitoring import RequestLine, request_line
from typedrag.serving.responses import CLIENT_LEFT, STOPPING, Fault, Refused, error_response, to_fault
from typedrag.serving.settings import HTTPLimits

logger = logging.getLogger(__name__)

# what anyone may get, besides the files of the page
OPEN = frozenset({"/", "/favicon.ico", "/healthz", "/readyz"})
FILES = "/static/"
PROBED = frozenset({"/healthz", "/readyz", "/metrics"})  # what is asked every few seconds, and not logged
HEAD_BYTES = 16_384  # the most of a request's target and headers together
NO_KEY = Fault(401, "invalid_api_key", "No valid API key was given; send it as Authorization: Bearer KEY.")
UNKNOWN_ORIGIN = Fault(
    403, "unknown_origin", "Pages from elsewhere may not use tools: start the server with --origins ORIGIN."
)
TWO_LENGTHS = Fault(400, "two_lengths", "A request has Content-Length or Transfer-Encoding, not both.")
INCOMPLETE = Fault(408, "incomplete", "The request did not come whole in time.")
LONG_HEAD = Fault(431, "head_too_large", f"A request's target and headers have {HEAD_BYTES:,} bytes at most.")
# of all replies; the page complies: no inline script or style, and nothing from elsewhere
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())


def middleware(admission: Admission) -> list[Middleware]:
    settings = admission.settings
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=("Retry-After", "X-Request-ID", *RATE_HEADERS),
    )
    return [
        Middleware(RequestMiddleware, log_questions=settings.log_questions),
        *([cors] if settings.origins else []),
        Middleware(AuthMiddleware, admission=admission),
        Middleware(BodyMiddleware, settings=settings),
    ]


class RequestMiddleware:
    """Gives every request an id, logs it, and replies even if the application fails."""

    def __init__(self, app: ASGIApp, *, log_questions: bool) -> None:
        self._app, self._log_questions = app, log_questions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        service, request = scope["app"].state.service, Request(scope)
        client_id = request.headers.get("x-request-id", "")
        line = RequestLine(uuid.uuid4().hex, client_id if _ID.fullmatch(client_id) else "")
        line.method = scope["method"] if scope["method"] in _METHODS else "other"
        line.address = _client_address(request)
        begun = time.perf_counter()
        whole = False

        async def send_with_headers(message: Message) -> None:
            nonlocal whole
            if message["type"] == "http.response.start":
                line.status = message["status"]
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                headers.update({"X-Request-ID": line.request_id, **line.headers})
                if service.admission.stopping:
                    headers["Connection"] = "close"
                if "Location" in headers:  # without the server's address: clients may know it by another one
                    target = urlsplit(headers["Location"])
                    path = "/" + target.path.lstrip("/")  # two slashes would lead to another host
                    headers["Location"] = f"{path}?{target.query}" if target.query else path
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            elif not message.get("more_body"):
                whole = True
            await send(message)

        with use_context(request=line):
            try:
                return await self._app(scope, receive, send_with_headers)
            except asyncio.CancelledError:  # uvicorn stops
                line.fault = STOPPING
                if not line.status:
                    await error_response(request, STOPPING)(scope, receive, send_with_headers)
            except Exception as error:
                line.fault = to_fault(error)
                if line.status:
                    raise  # a reply that has begun can only be cut off, which uvicorn does and logs
                logger.error("request %s failed", line.request_id, exc_info=error)
                return await error_response(request, line.fault)(scope, receive, send_with_headers)
            finally:
                line.path = _path(scope)
                line.seconds = time.perf_counter() - begun
                line.fault = line.fault or (None if whole else CLIENT_LEFT)
                status = line.status or CLIENT_LEFT.status
                service.metrics.count_request(line.path or "other", status, line.seconds, line.fault)
                if line.path not in PROBED:
                    line.write(with_questions=self._log_questions)


class AuthMiddleware:
    """Admits clients with a key, or all clients if there are no keys, within their rates."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app, self._admission, self._settings = app, admission, admission.settings
        self._here_alone = admission.keyring is None and not self._settings.no_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = Request(scope)
            try:
                self._admit(request)
            except Refused as refused:
                key_wanted = {"WWW-Authenticate": "Bearer"} if refused.fault is NO_KEY else {}
                seconds = self._settings.read_seconds
                return await _refuse(request, refused.fault, receive, send, seconds, key_wanted)
        return await self._app(scope, receive, send)

    def _admit(self, request: Request) -> None:
        path, line = request.scope["path"], request_line()
        host, origin = (request.headers.get(name, "") for name in ("host", "origin"))
        if self._here_alone and not _is_local(host, self._settings.hosts):
            name = host.partition(":")[0] if _ID.fullmatch(host) else "NAME"
            message = f"A server without keys answers to localhost: start it with --hosts {name}, or with --keys."
            raise Refused(Fault(421, "unknown_host", message))
        if path == "/mcp" and origin not in ("", *self._settings.origins) and not _is_local(origin.rpartition("/")[2]):
            raise Refused(UNKNOWN_ORIGIN)
        if request.method in ("GET", "HEAD") and (path in OPEN or path.startswith(FILES)):
            return
        admission = self._admission
        if admission.keyring is not None:
            scheme, _, secret = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer":
                secret = request.headers.get("x-api-key", "")
            line.key = admission.keyring.find(secret.strip())
            if line.key is None:
                admission.count_failure(line.address)
                raise Refused(NO_KEY)
        admission.admit()


class BodyMiddleware:
    """Reads a request's body before it is passed on, and refuses one that is too large or does not come in time."""

    def __init__(self, app: ASGIApp, settings: HTTPLimits) -> None:
        self._app, self._most, self._seconds = app, settings.body_bytes, settings.read_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = Request(scope)
        head = len(scope["raw_path"]) + len(scope["query_string"])
        if head + sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_BYTES:
            return await _refuse(request, LONG_HEAD, receive, send, self._seconds)
        if not _has_body(request):
            return await self._app(scope, receive, send)
        if {"content-length", "transfer-encoding"} <= set(request.headers):  # a proxy may have read another request
            return await _refuse(request, TWO_LENGTHS, receive, send, 0, {"Connection": "close"})
        too_large = Fault(413, "too_large", f"A request's body has {self._most:,} bytes at most.")
        body, more = bytearray(), True
        try:
            if int(request.headers.get("content-length", 0)) > self._most:
                raise Refused(too_large)
            async with asyncio.timeout(self._seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(INCOMPLETE)
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if more and len(body) > self._most:
                        raise Refused(too_large)
        except (Refused, TimeoutError) as error:
            fault = error.fault if isinstance(error, Refused) else INCOMPLETE
            seconds = 0.0 if fault is INCOMPLETE else self._seconds
            return await _refuse(request, fault, receive, send, seconds)
        if len(body) > self._most:  # nothing more comes
            return await error_response(request, too_large)(scope, receive, send)
        unread = [bytes(body)]

        async def receive_again() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            return await receive()

        return await self._app(scope, receive_again, send)


async def _refuse(
    request: Request, fault: Fault, receive: Receive, send: Send, seconds: float, headers: Mapping[str, str] = {}
) -> None:
    """Reply with a fault. What comes of the body is read first, for some seconds, since closing at once would lose the
    reply; then the connection is closed if there is more."""
    whole = not _has_body(request)
    try:
        async with asyncio.timeout(seconds):
            while not whole:
                message = await receive()
                whole = message["type"] == "http.disconnect" or not message.get("more_body")
    except TimeoutError:
        headers = {**headers, "Connection": "close"}
    await error_response(request, fault, headers)(request.scope, receive, send)


def _has_body(request: Request) -> bool:
    return "content-length" in request.headers or "transfer-encoding" in request.headers


def is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _is_local(host: str, others: Sequence[str] = ()) -> bool:
    """True if a host is none, this machine by a local name, or one of others: a stranger's page may point its own
    domain here (DNS rebinding)."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return not host or name in ("localhost", *others) or is_loopback(name)


def _client_address(request: Request) -> str:
    """The client's address; with IPv6 its network, which a client has to itself."""
    host = request.client.host if request.client else ""
    try:
        return str(ip_network((host, 64), strict=False)) if ":" in host else host
    except ValueError:
        return host


def _path(scope: Scope) -> str:
    """The path of the route, or of the request if it is a known one; never text that a stranger has written."""
    if path := getattr(scope.get("route"), "path", ""):
        return str(path)
    known = {getattr(route, "path", "") for route in scope["app"].routes}
    return str(scope["path"]) if scope["path"] in known else ""
