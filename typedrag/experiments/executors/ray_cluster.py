"""A Ray cluster to run on: the one at an address, or one that is started on this machine and stopped at the end."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typedrag.core.errors import InputError, Unavailable, first_line
from typedrag.core.extras import require

_FORMS = "local, ray, ray:auto, ray:HOST:PORT or ray://HOST:PORT"
_LOCAL, _CLIENT = "local", "ray://"
_PATIENCE = 5.0
"""Seconds in which something listens at an address, or the cluster counts as unreachable."""
_TOKEN = "~/.ray/auth_token"
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
_SIGACTION_BYTES = 512
"""More than the C library's `struct sigaction` takes on any system."""
_START = "Is it running? Start one: ray start --head"


def ray_address(executor: str) -> str | None:
    """The address of the Ray cluster that an executor names, empty for that of `RAY_ADDRESS` or a new one; None for
    `local`.

    Example:
        >>> ray_address("local"), ray_address("ray"), ray_address("ray:auto"), ray_address("ray://head:10001")
        (None, '', 'auto', 'ray://head:10001')
    """
    kind, colon, address = executor.partition(":")
    if executor == _LOCAL:
        return None
    if kind != "ray" or (colon and not address.strip("/")):
        raise InputError(f"'{executor}' is no executor", f"Write one of: {_FORMS}")
    if executor.startswith(_CLIENT):
        return executor
    if colon and address != "auto" and not address.rpartition(":")[2].isdecimal():
        raise InputError(f"'{executor}' names no port", f"Write one of: {_FORMS}")
    return address


@contextmanager
def connect(executor: str, workers: int | None, *, threads: int, calls: int) -> Iterator[int]:
    """Connect to the Ray cluster that an executor names; yields the number of its workers, 0 for `local`.

    Args:
        executor: See `ray_address`.
        workers: As many as are wanted; by default one for each CPU of the cluster that has something to do.
        threads: Questions under way at once, over all workers.
        calls: LM calls in flight at once, over all workers.
    """
    address, most = ray_address(executor), min(threads, calls)
    if address is None:
        if workers is not None:
            raise InputError("--workers are of --executor ray", "Leave them out, or add it")
        yield 0
        return
    require("ray")
    _use_token()
    if workers is not None and workers > most:
        raise InputError(
            f"{workers} workers cannot share {threads} questions and {calls} LM calls at once",
            "Name fewer --workers, or raise --threads and --calls-in-flight",
        )
    import ray

    mine = not ray.is_initialized()
    if mine:
        _init(address or os.environ.get("RAY_ADDRESS", ""), workers)
    try:
        cpus = int(ray.cluster_resources().get("CPU", 0))
        if cpus < (workers or 1):
            raise Unavailable(
                f"the Ray cluster has {cpus} CPUs for {workers or 1} workers", "Name fewer --workers, or add machines"
            )
        yield workers or min(cpus, most)
    finally:
        if mine:
            with _own_signals():
                ray.shutdown()


def is_one_machine() -> bool:
    """True if all of the connected cluster is this machine."""
    import ray

    return len([node for node in ray.nodes() if node["Alive"]]) == 1


def _init(address: str, workers: int | None) -> None:
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    ray._private.worker._worker_logs_enabled = False  # it tells of lost workers on stdout, amid the answers
    try:
        with _own_signals():
            if address:
                _check_reachable(address)
                ray.init(address, **quiet)
            else:
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
                os.environ.setdefault("RAY_worker_niceness", "0")  # by default 15, and all else goes before them
                cpus = max(workers or 1, os.cpu_count() or 1)
                ray.init("local", num_cpus=cpus, include_dashboard=False, **quiet)
    except ImportError as error:
        raise Unavailable(
            f"Ray cannot use {address}: {first_line(error)}", "Install it: pip install 'ray[client]'"
        ) from None
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, ray.exceptions.RayError) as error:
        where = f"no Ray cluster answers at {address}" if address else "Ray cannot be started here"
        raise Unavailable(f"{where}: {first_line(error)}", _START if address else "") from error


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.removeprefix(_CLIENT).partition("/")[0].rpartition(":")
    if not port.isdecimal():
        return  # such as auto
    try:
        socket.create_connection((host, int(port)), _PATIENCE).close()
    except OSError as error:
        raise Unavailable(f"no Ray cluster answers at {address}: {error.strerror or error}", _START) from None


def _use_token() -> None:
    """Show a cluster this user's token, if there is one: `ray start` asks for it, but only a new local Ray shows it.

    Ray reads this as it is imported.
    """
    if os.environ.get("RAY_AUTH_TOKEN") or Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or _TOKEN).expanduser().is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the handlers of signals as they were: Ray sets its own, and removes them all when it is shut down.

    Without its own handler of SIGSEGV, Java ends the process when it next stops its threads for a moment.
    """
    libc = ctypes.CDLL(None) if os.name == "posix" else None
    held = {number: ctypes.create_string_buffer(_SIGACTION_BYTES) for number in _FAULTS} if libc else {}
    for number, action in held.items():
        libc.sigaction(number, None, action)  # type: ignore[union-attr]
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        for number, action in held.items():
            libc.sigaction(number, action, None)  # type: ignore[union-attr]
        if main:
            signal.signal(signal.SIGTERM, before)
