"""Runs a server until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI
from opentelemetry.trace import TracerProvider

from typedrag.errors import InputError
from typedrag.serving.app import create_app
from typedrag.serving.guard.connections import connection_options
from typedrag.serving.guard.exposure import exposure
from typedrag.serving.logs import log_requests
from typedrag.serving.observer import Observer
from typedrag.serving.reload import Reloader
from typedrag.serving.served import Served, ServedSource
from typedrag.serving.service import Service
from typedrag.serving.settings import HTTPLimits, Settings
from typedrag.serving.tracing import spans_wanted

_BACKLOG = 2048
_LEAST_TO_SEND = 5.0
"""Seconds left for sending finished answers when the server stops."""
_REGISTRY = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""MLflow's settings with which an unreachable registry fails within seconds, not minutes."""


Serving = Callable[[socket.socket, Callable[[], None]], None]
"""Serves at a socket until SIGTERM or SIGINT; what is to be done when it does is called then."""


def serve(
    name: str,
    opening: Callable[[], Serving],
    settings: HTTPLimits,
    *,
    host: str,
    port: int,
    say: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT; requests under way are then answered first.

    Args:
        name: Of what is served, for its user.
        opening: Opens it.
        settings: Limits.
        host: Address to listen at.
        port: 0 takes any that is free.
        say: Is told where it listens.

    Raises:
        TypedRAGError: If it cannot be opened.
        InputError: If the address cannot be listened at, or it could be from elsewhere, without keys.
    """
    say(exposure(host, settings))
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is heard: what is opened now is the newest
    serving = opening()
    listener = listen(host, port)
    say(f"typedrag serves {name} at http://{host}:{listener.getsockname()[1]}")
    serving(listener, lambda: None)


def open_programs(sources: Sequence[ServedSource], settings: Settings) -> Serving:
    """Open programs to be served. SIGHUP opens them all anew.

    Raises:
        TypedRAGError: If a program, its LM or its index cannot be had.
    """
    return partial(run, open_all(sources, settings), sources, settings)


@dataclass(frozen=True)
class Opened:
    """The parts opened before a server takes questions.

    Attributes:
        programs: The programs.
        observers: The observers besides the metrics.
        tracer_provider: OpenTelemetry's provider; None for no spans.
    """

    programs: Sequence[Served]
    observers: Sequence[Observer]
    tracer_provider: TracerProvider | None


def open_all(sources: Sequence[ServedSource], settings: Settings, *, over_http: bool = True) -> Opened:
    """Open the programs and their observers.

    Args:
        sources: The sources of the programs.
        settings: The limits.
        over_http: Whether questions come over HTTP; only its requests have spans.

    Raises:
        TypedRAGError: If a program, its LM, its index or the store of traces cannot be opened.
    """
    for name, value in _REGISTRY.items():
        os.environ.setdefault(name, value)
    observers: list[Observer] = []
    provider = None
    if over_http and spans_wanted():
        from typedrag.serving.spans import Spans

        spans = Spans(log_questions=settings.log_questions)
        observers.append(spans)
        provider = spans.provider
    if settings.traces:
        from typedrag.serving.mlflow_traces import MLflowTraces

        observers.append(MLflowTraces(settings.traces))
    return Opened([source.open() for source in sources], observers, provider)


def run(
    opened: Opened,
    sources: Sequence[ServedSource],
    settings: Settings,
    listener: socket.socket,
    on_ready: Callable[[], None],
) -> None:
    """Serve opened programs at a socket until SIGTERM or SIGINT; call `on_ready` once it serves."""

    def build() -> Service:
        service = Service(opened.programs, settings, *opened.observers)
        reloader = Reloader(service, sources)
        reloader.watch()
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloader.reload_all)
        asyncio.get_running_loop().call_soon(on_ready)
        return service

    run_app(create_app(build, opened.tracer_provider), settings, listener)


def run_app(app: FastAPI, settings: HTTPLimits, listener: socket.socket) -> None:
    """Serve an application at a socket until SIGTERM or SIGINT."""
    log_requests()
    _Server(app, settings).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that finishes questions under way before it closes its socket, and refuses new ones meanwhile."""

    def __init__(self, app: FastAPI, settings: HTTPLimits) -> None:
        super().__init__(uvicorn.Config(app, **connection_options(settings)))
        self._app = app
        self._seconds = settings.drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal to stop: only a second Ctrl-C cuts off what is under way.

        A replica gets SIGINT from the terminal and SIGTERM from its supervisor, in either order on a busy machine.
        """
        super().handle_exit(sig, frame)
        self.force_exit = self._captured_signals.count(signal.SIGINT) > 1

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish questions, then close; at once after another Ctrl-C."""
        begun = time.monotonic()
        draining = asyncio.ensure_future(self._app.state.service.drain())
        while not draining.done() and not self.force_exit:
            await asyncio.wait((draining,), timeout=0.1)
        if self.force_exit:
            logging.getLogger("uvicorn.error").disabled = True  # it would log tracebacks of what is cut off
        left = self._seconds - (time.monotonic() - begun)
        self.config.timeout_graceful_shutdown = round(max(left, _LEAST_TO_SEND))
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address.

    Raises:
        InputError: If the address cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise InputError(f"{host}:{port} cannot be listened at: {error.strerror}", "Choose another --port") from None
    return listener
