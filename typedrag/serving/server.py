"""Runs a server, in this process or by several, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.supervisors import Multiprocess

from typedrag.core.errors import InputError, TypedRAGError
from typedrag.serving.admission import Admission
from typedrag.serving.app import create_app
from typedrag.serving.keys import open_keyring
from typedrag.serving.middleware import HEAD_BYTES, is_loopback
from typedrag.serving.monitoring import SHARED, log_json
from typedrag.serving.programs import ProgramSpec, Reloader, freeze_loaded
from typedrag.serving.service import Service
from typedrag.serving.settings import HTTPLimits, Settings

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from typedrag.serving.tracing import Tracing

logger = logging.getLogger(__name__)

UNIX = "unix:"  # before the file of a socket
_BACKLOG = 2048
_TO_REACT = 30  # seconds after which a worker that does not react is taken for hung, and is killed
_BEFORE_RESTART = 5.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def http_options(settings: HTTPLimits, host: str = "") -> dict[str, Any]:
    """The options of uvicorn."""
    certificate = settings.tls_cert or settings.tls_key
    if certificate:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, settings.tls_key)
        except OSError as error:
            raise InputError(f"{certificate} is no certificate with its key: {error}", "Name two PEM files") from None
    return {
        "ssl_certfile": certificate,
        "ssl_keyfile": settings.tls_key,
        "forwarded_allow_ips": "*" if host.startswith(UNIX) else None,
        "http": "h11",  # the one of uvicorn's parsers that limits the size of heads
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "ws": "none",
        "server_header": False,
        "access_log": False,
        "log_config": None,
        "log_level": "error",  # requests that are not HTTP are answered, not logged
        "timeout_keep_alive": settings.keep_alive,
        "timeout_graceful_shutdown": 5,  # seconds for sending what is finished when the server stops
    }


def open_app(specs: Sequence[ProgramSpec], settings: Settings) -> FastAPI:
    """Open programs, and the application that serves them. SIGHUP reloads them all."""
    service = Service([spec.open() for spec in specs], settings, open_tracing(settings))

    def start() -> None:
        reloader = Reloader(service, specs)
        reloader.watch()
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloader.reload_all)
        drain_before_exit(service.admission)

    return create_app(service, start)


def open_tracing(settings: Settings) -> Tracing | None:
    """The exporter that OpenTelemetry's variables ask for; None if they ask for none, without importing its SDK."""
    exporters = os.environ.get("OTEL_TRACES_EXPORTER", "")
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporters == "none":
        return None
    if not exporters and not any(os.environ.get(name) for name in _ENDPOINTS):
        return None
    from typedrag.serving.tracing import Tracing

    return Tracing(log_questions=settings.log_questions)


def serve(
    name: str,
    opening: Callable[[], FastAPI],
    settings: HTTPLimits,
    *,
    host: str,
    port: int,
    workers: int,
    report: Callable[[str], None],
    prepare: Callable[[], None],
) -> None:
    """Serve until SIGTERM or SIGINT; requests under way are then answered first.

    For several workers, which are spawned and started again where they die, `opening` and `prepare` have to be
    functions that can be pickled. Limits are those of each worker by itself.

    Args:
        name: Of what is served, for its user.
        opening: Opens it.
        settings: The limits.
        host: Address to listen at.
        port: 0 takes any that is free.
        workers: Processes that serve.
        report: Called with the address where it listens.
        prepare: Is called first in each of several workers.
    """
    report(check_bind_address(host, settings))
    raise_file_limit()
    options = http_options(settings, host)
    message = f"typedrag serves {name} at {{}}"
    if workers == 1:
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is heard: what is opened now is the newest
        app = opening()
        freeze_loaded()
        log_json()
        listener = listen(host, port, settings)
        report(message.format(_address(listener, settings)))
        uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[listener])
        return
    listener = listen(host, port, settings)
    log_json()
    reports, line = multiprocessing.get_context("spawn").Pipe(duplex=False)
    start = _Start(line)
    failed = 0

    def follow() -> None:
        nonlocal failed
        count = 0
        with suppress(EOFError):
            while True:
                fault = reports.recv()
                count += fault is None
                if fault and start.complete:
                    logger.error("a worker cannot serve: %s", fault[1])
                elif fault and not failed:
                    failed = fault[0]
                    report(f"Error: {fault[1]}")
                    supervisor.should_exit.set()
                elif start.complete:
                    logger.warning("a worker serves again")
                elif count == workers:
                    start.complete = True
                    report(message.format(_address(listener, settings)))

    with tempfile.TemporaryDirectory(prefix="typedrag-metrics-") as folder:
        os.environ[SHARED] = folder
        factory = partial(_open_in_worker, opening, prepare, start)
        options |= {"factory": True, "workers": workers, "timeout_worker_healthcheck": _TO_REACT}
        supervisor = _Supervisor(uvicorn.Config(factory, **options), [listener])
        following = threading.Thread(target=follow, daemon=True)
        following.start()
        try:
            supervisor.serve()
        finally:
            del os.environ[SHARED]
            line.close()
            following.join(1)
    if failed:
        sys.exit(failed)


class _Supervisor(Multiprocess):
    """uvicorn's supervisor of workers, which passes SIGHUP on, and ends as the signal says that ends it."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
        self._handlers = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names}
        super().__init__(config, sockets)
        self._last = 0

    def serve(self) -> None:
        self.run()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._last:
            signal.raise_signal(self._last)

    def handle_int(self) -> None:
        self._last = signal.SIGINT
        super().handle_int()

    def handle_term(self) -> None:
        self._last = signal.SIGTERM
        super().handle_term()

    def handle_hup(self) -> None:
        """Let each worker reload its programs, instead of starting others."""
        for process in self.processes:
            if process.pid and process.process.is_alive():
                os.kill(process.pid, signal.SIGHUP)

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have died, and take their gauges out of the metrics."""
        before = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {process.pid for process in self.processes}:
            mark_process_dead(pid, os.environ[SHARED])


@dataclass
class _Start:
    """Facts that each new worker is handed: the `line` on which it reports nothing once it has opened, or the exit code
    and the words of an error, and if the start is `complete`, since all workers have served. If one fails later, it is
    started again; before, all end."""

    line: Connection
    complete: bool = False


def _open_in_worker(opening: Callable[[], FastAPI], prepare: Callable[[], None], start: _Start) -> FastAPI:
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # no reload is needed while opening
    prepare()
    log_json()

    def end_with_supervisor() -> None:
        supervisor = multiprocessing.parent_process()
        assert supervisor is not None
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_supervisor, daemon=True).start()
    try:
        app = opening()
    except TypedRAGError as error:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        start.line.send((2 if isinstance(error, InputError) else 3, str(error)))
        time.sleep(_BEFORE_RESTART)  # before the first start is complete, the supervisor ends all meanwhile
        sys.exit(1)
    freeze_loaded()
    start.line.send(None)
    return app


def drain_before_exit(admission: Admission) -> None:
    """Drain a server at SIGTERM or SIGINT, before the HTTP server closes its socket by its own handlers.

    Only a second SIGINT cuts off what is under way: a worker gets SIGINT from the terminal and SIGTERM from its
    supervisor, in either order.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    loop, interrupts = asyncio.get_running_loop(), 0
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    tasks = set()

    def close(number: int) -> None:
        handler = handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, None)

    async def drain(number: int) -> None:
        await admission.drain()
        close(number)

    def begin(number: int) -> None:
        tasks.add(loop.create_task(drain(number)))

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if interrupts > 1:
            logging.getLogger("uvicorn.error").disabled = True  # it would log tracebacks of what is cut off
            close(number)
            close(number)
        elif not admission.stopping:
            admission.stopping = True
            loop.call_soon_threadsafe(begin, number)

    for number in handlers:
        signal.signal(number, stop)


def raise_file_limit() -> None:
    """Let this process have as many connections as the system allows it: 1,024 files are soon taken."""
    if resource is not None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def check_bind_address(host: str, settings: HTTPLimits) -> str:
    keyring = open_keyring(settings.keys)
    if keyring and settings.no_keys:
        raise InputError("--keys and --no-keys contradict each other", "Leave one out")
    if keyring:
        return f"Keys that are let in: {keyring.count}."
    if settings.no_keys:
        return f"WARNING: no key is needed. Whoever reaches {host} may ask, at your cost."
    if host.startswith(UNIX):
        return "WARNING: no key is needed. Whoever may write to the socket may ask."
    try:
        addresses = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError as error:
        raise InputError(f"--host {host} has no address: {error.strerror}", "Name another") from None
    if not all(map(is_loopback, addresses)):
        raise InputError(
            f"without keys the server would answer anyone who reaches {host}",
            "Make a key (typedrag keys --keys FILE add NAME) and say --keys FILE here, too; or say --no-keys",
        )
    return "WARNING: no key is needed. Whoever uses this machine may ask; others cannot reach the server."


def listen(host: str, port: int, settings: HTTPLimits) -> socket.socket:
    try:
        if host.startswith(UNIX):
            _remove_abandoned(Path(host.removeprefix(UNIX)))
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(host.removeprefix(UNIX))
        else:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, protocol)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux; connections inherit it
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * settings.read_seconds))
            listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        place, hint = (host, "--host") if host.startswith(UNIX) else (f"{host}:{port}", "--port")
        raise InputError(f"{place} cannot be listened at: {error.strerror}", f"Choose another {hint}") from None
    return listener


def _remove_abandoned(path: Path) -> None:
    """Remove the socket of a server that has ended."""
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as other:
            if other.connect_ex(str(path)):
                path.unlink()


def _address(listener: socket.socket, settings: HTTPLimits) -> str:
    """The address to open in a browser, or the file of a socket."""
    name = listener.getsockname()
    if isinstance(name, str):
        return f"{UNIX}{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"{'https' if settings.tls_cert or settings.tls_key else 'http'}://{host}:{name[1]}"
