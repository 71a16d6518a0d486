"""A server that runs until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import uvicorn

from typedrag.errors import InputError
from typedrag.serving.app import create_app
from typedrag.serving.guard.connections import connection_options
from typedrag.serving.guard.exposure import exposure
from typedrag.serving.logs import log_requests
from typedrag.serving.served import ServedSource
from typedrag.serving.service import Service
from typedrag.serving.settings import Settings

_BACKLOG = 2048


def serve(
    sources: Sequence[ServedSource], settings: Settings, *, host: str, port: int, say: Callable[[str], None]
) -> None:
    """Serve programs until SIGTERM or SIGINT; questions under way are then answered first.

    Args:
        sources: Of the programs.
        settings: Limits.
        host: Address to listen at.
        port: 0 takes any that is free.
        say: Is told where it listens.

    Raises:
        TypedRAGError: If a program, its LM or its index cannot be had.
        InputError: If the address cannot be listened at, or it could be from elsewhere, without keys.
    """
    say(exposure(host, settings))
    programs = [source.open() for source in sources]
    listener = _listen(host, port)
    say(f"typedrag serves {', '.join(p.name for p in programs)} at http://{host}:{listener.getsockname()[1]}")
    app = create_app(lambda: Service(programs, settings))
    log_requests()
    drain = round(settings.drain)
    config = uvicorn.Config(app, timeout_graceful_shutdown=drain, **connection_options(settings))
    uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise InputError(f"{host}:{port} cannot be listened at: {error.strerror}", "Choose another --port") from None
    return listener
