"""Admission of requests: by API key, by host, and by rate."""

from __future__ import annotations

import math
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from typedrag.serving.faults import Fault, Refused
from typedrag.serving.guard.rates import Rates
from typedrag.serving.keys import Key, Keyring
from typedrag.serving.logs import request_line
from typedrag.serving.replies import reply
from typedrag.serving.settings import HTTPLimits

OPEN = frozenset({"/", "/favicon.ico", "/healthz", "/readyz"})
"""Paths that anyone may get, besides the files of the page."""
FILES = "/static/"
NO_KEY = Fault(401, "invalid_api_key", "No valid API key was given; send it as Authorization: Bearer KEY.")
ELSEWHERE = Fault(
    421, "unknown_host", "A server without keys answers on its own machine alone: ask it by the name localhost."
)


def too_often(seconds: float) -> Fault:
    """The fault that a key or an address has no request left."""
    return Fault(429, "rate_limited", "Too many requests in this minute; ask again later.", math.ceil(seconds))


class Door:
    """Admits clients with a key, or all clients if there are no keys, within their rates.

    Args:
        app: The application behind it.
        settings: The settings `keys`, `no_keys` and `rate`.

    Raises:
        InputError: If the key file cannot be used.
    """

    def __init__(self, app: ASGIApp, settings: HTTPLimits) -> None:
        self._app = app
        self._keyring = Keyring(settings.keys) if settings.keys else None
        self._here_alone = self._keyring is None and not settings.no_keys
        self._rate = settings.rate
        self._rates = Rates()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a request, or refuse it."""
        request = Request(scope)
        try:
            self._admit(request)
        except Refused as refused:
            asks_for_key = {"WWW-Authenticate": "Bearer"} if refused.fault is NO_KEY else {}
            return await reply(request, refused.fault, asks_for_key)(scope, receive, send)
        return await self._app(scope, receive, send)

    def _admit(self, request: Request) -> None:
        if self._here_alone and not _is_of_this_machine(request.headers.get("host", "")):
            raise Refused(ELSEWHERE)
        path = request.scope["path"]
        if request.method in ("GET", "HEAD") and (path in OPEN or path.startswith(FILES)):
            return
        if self._keyring is None:
            who, rate = _address_of(request), self._rate
        else:
            key = self._key(self._keyring, request.headers)
            request_line().key = request.state.key = key.name
            who, rate = key.name, key.rate or self._rate
        if wait := self._rates.wait(who, rate):
            raise Refused(too_often(wait))

    @staticmethod
    def _key(keyring: Keyring, headers: Headers) -> Key:
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            secret = headers.get("x-api-key", "")
        key = keyring.find(secret.strip())
        if key is None:
            raise Refused(NO_KEY)
        return key


def is_loopback(address: str) -> bool:
    """True if an IP address is a loopback address."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _is_of_this_machine(host: str) -> bool:
    """True if a `Host` header names this machine: a stranger's page may point its own domain here (DNS rebinding)."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return not host or name == "localhost" or is_loopback(name)


def _address_of(request: Request) -> str:
    """The client's address; with IPv6 its network, which a client has to itself."""
    host = request.client.host if request.client else ""
    try:
        return str(ip_network((host, 64), strict=False)) if ":" in host else host
    except ValueError:
        return host
