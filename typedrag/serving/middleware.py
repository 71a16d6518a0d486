"""The middleware between strangers and the programs: ids, log, headers, keys, rates, sizes and times of requests."""

import asyncio
import logging
import math
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from typedrag.core.call_context import use_context
from typedrag.serving.keys import Keyring
from typedrag.serving.monitoring import RequestLine, request_line
from typedrag.serving.responses import Fault, Refused, error_response, to_fault
from typedrag.serving.settings import HTTPLimits

logger = logging.getLogger(__name__)

# what anyone may get, besides the files of the page
OPEN = frozenset({"/", "/favicon.ico", "/healthz", "/readyz"})
FILES = "/static/"
HEAD_BYTES = 16_384  # the most of a request's target and headers together
NO_KEY = Fault(401, "invalid_api_key", "No valid API key was given; send it as Authorization: Bearer KEY.")
ELSEWHERE = Fault(
    421, "unknown_host", "A server without keys answers on its own machine alone: ask it by the name localhost."
)
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
_CLIENT_LEFT = 499
_METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())
_MOST_CLIENTS = 100_000


def middleware(settings: HTTPLimits) -> list[Middleware]:
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=("Retry-After", "X-Request-ID"),
    )
    keyring = Keyring(settings.keys) if settings.keys else None
    return [
        Middleware(RequestMiddleware, log_questions=settings.log_questions),
        *([cors] if settings.origins else []),
        Middleware(AuthMiddleware, settings=settings, keyring=keyring),
        Middleware(BodyMiddleware, settings=settings),
    ]


class RequestMiddleware:
    """Gives every request an id, logs it, and replies even if the application fails."""

    def __init__(self, app: ASGIApp, *, log_questions: bool) -> None:
        self._app, self._log_questions = app, log_questions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        client_id = Headers(scope=scope).get("x-request-id", "")
        line = RequestLine(client_id if _ID.fullmatch(client_id) else uuid.uuid4().hex)
        line.method = scope["method"] if scope["method"] in _METHODS else "other"
        scope.setdefault("state", {})["id"] = line.id
        begun = time.perf_counter()
        whole = False

        async def send_with_headers(message: Message) -> None:
            nonlocal whole
            if message["type"] == "http.response.start":
                line.status = message["status"]
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = line.id
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
            except Exception as error:
                line.error = to_fault(error).code
                if line.status:
                    raise  # a reply that has begun can only be cut off, which uvicorn does and logs
                logger.error("request %s failed", line.id, exc_info=error)
                return await error_response(Request(scope), to_fault(error))(scope, receive, send_with_headers)
            finally:
                line.path = _path(scope)
                line.seconds = time.perf_counter() - begun
                line.error = line.error or ("" if whole else "client_left")
                metrics = scope["app"].state.service.metrics
                metrics.count_request(line.path or "other", line.status or _CLIENT_LEFT, line.seconds)
                line.write(with_questions=self._log_questions)


class AuthMiddleware:
    """Admits clients with a key, or all clients if there are no keys, within their rates."""

    def __init__(self, app: ASGIApp, settings: HTTPLimits, keyring: Keyring | None) -> None:
        self._app, self._settings, self._keyring = app, settings, keyring
        self._here_alone = keyring is None and not settings.no_keys
        self._rates = RateLimiter()

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
        if self._here_alone and not _is_local_name(request.headers.get("host", "")):
            raise Refused(ELSEWHERE)
        path = request.scope["path"]
        if request.method in ("GET", "HEAD") and (path in OPEN or path.startswith(FILES)):
            return
        if self._keyring is None:
            client, rate = _client_address(request), self._settings.rate
        else:
            scheme, _, secret = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer":
                secret = request.headers.get("x-api-key", "")
            key = self._keyring.find(secret.strip())
            if key is None:
                raise Refused(NO_KEY)
            request_line().key = request.state.key = key.name
            client, rate = key.name, key.rate or self._settings.rate
        if wait := self._rates.wait(client, rate):
            message = "Too many requests in this minute; ask again later."
            raise Refused(Fault(429, "rate_limited", message, math.ceil(wait)))


class RateLimiter:
    """A bucket of a minute's requests for each client, which refills with time. The least recently used are forgotten
    first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = _MOST_CLIENTS) -> None:
        self._clock, self._most = clock, most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, rate: int) -> float:
        """Take a request of a client. Returns 0 if there was one, else the seconds until there is.

        `rate` requests a minute may all come at once.
        """
        now = self._clock()
        left, since = self._buckets.pop(client, (float(rate), now))
        left = min(float(rate), left + (now - since) * rate / 60)
        admitted = left >= 1
        self._buckets[client] = (left - admitted, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0 if admitted else (1 - left) * 60 / rate


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


def _is_local_name(host: str) -> bool:
    """True if a `Host` header names this machine: a stranger's page may point its own domain here (DNS rebinding)."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return not host or name == "localhost" or is_loopback(name)


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
