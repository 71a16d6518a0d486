"""The guard between strangers and the programs: ids, logs, headers, keys, rates, sizes and times of requests."""

from __future__ import annotations

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from typedrag.serving.guard.door import Door
from typedrag.serving.guard.requests import Requests
from typedrag.serving.guard.sizes import Sizes
from typedrag.serving.settings import HTTPLimits


class Guard:
    """Lets only those requests through that the settings of the application's service allow.

    Args:
        app: The application to guard.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._guarded: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the start and end of the application."""
        if scope["type"] == "http":
            if self._guarded is None:
                self._guarded = guarded(self._app, scope["app"].state.service.settings)
            return await self._guarded(scope, receive, send)
        return await self._app(scope, receive, send)


def guarded(app: ASGIApp, settings: HTTPLimits) -> ASGIApp:
    """An application wrapped in its guards, the outermost last."""
    app = Sizes(app, settings.body_bytes)
    app = Door(app, settings)
    if settings.origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("Retry-After", "X-Request-ID"),
        )
    return Requests(app, log_questions=settings.log_questions)
