"""Several processes that serve at one socket, and a supervisor.

They are spawned, never forked: a Java virtual machine and threads do not survive a fork.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from typedrag.errors import InputError, TypedRAGError, Unavailable
from typedrag.serving.guard.exposure import exposure
from typedrag.serving.metrics import SHARED
from typedrag.serving.run import Serving, listen
from typedrag.serving.settings import HTTPLimits

logger = logging.getLogger(__name__)

_SPAWN = multiprocessing.get_context("spawn")
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0
_STEADY = 60.0
"""A replica that dies after so many seconds is restarted at once: it was able to serve."""
_TO_DIE = 10.0


@dataclass
class _Replica:
    """A process that serves.

    Attributes:
        process: The process.
        line: The pipe on which it reports that it is ready, or its error; it ends when this end is closed.
        since: When it was started.
        ready: Whether it serves.
    """

    process: Any
    line: Connection
    since: float
    ready: bool = False


class Replicas:
    """Processes that serve the same programs at one socket. One that dies is restarted, with growing delays.

    Args:
        opening: Opens what is served, in each of them; it has to be a function that can be pickled.
        settings: Limits, of each process by itself.
        listener: That they share.
        prepare: Is called first in each of them; it has to be a function that can be pickled.
    """

    def __init__(
        self,
        opening: Callable[[], Serving],
        settings: HTTPLimits,
        listener: socket.socket,
        prepare: Callable[[], None],
    ) -> None:
        self._given = (opening, listener, prepare)
        self._settings = settings
        self._replicas: list[_Replica] = []
        self._to_start: list[float] = []
        self._wait = _FIRST_WAIT

    def run(self, count: int, on_ready: Callable[[], None]) -> None:
        """Run and supervise replicas until a signal; questions under way are then answered first.

        Args:
            count: The number of replicas.
            on_ready: Called once, when all serve.

        Raises:
            TypedRAGError: If the first ones cannot serve.
        """
        before = signal.signal(signal.SIGHUP, self._pass_on) if hasattr(signal, "SIGHUP") else None
        with tempfile.TemporaryDirectory(prefix="typedrag-metrics-") as folder:
            os.environ[SHARED] = folder
            try:
                self._to_start = [time.monotonic()] * count
                all_ready = False
                while True:
                    self._start_due()
                    self._hear(all_ready)
                    if not all_ready and sum(replica.ready for replica in self._replicas) == count:
                        all_ready = True
                        on_ready()
            finally:
                self._stop()
                del os.environ[SHARED]
                if before is not None:
                    signal.signal(signal.SIGHUP, before)

    def _start_due(self) -> None:
        due = [at for at in self._to_start if at <= time.monotonic()]
        self._to_start = [at for at in self._to_start if at not in due]
        for _ in due:
            line, theirs = _SPAWN.Pipe()
            process = _SPAWN.Process(target=_serve, args=(*self._given, theirs), name="typedrag-replica")
            process.start()
            theirs.close()
            self._replicas.append(_Replica(process, line, time.monotonic()))

    def _hear(self, started: bool) -> None:
        """Wait for a report of a replica, its end, or the time to start one."""
        until = min(self._to_start, default=float("inf")) - time.monotonic()
        lines = {replica.line: replica for replica in self._replicas}
        for line in wait(list(lines), None if until == float("inf") else max(until, 0.0)):
            replica = lines[line]  # type: ignore[index]
            try:
                fault = replica.line.recv()
            except (EOFError, OSError):
                self._bury(replica, started)
                continue
            if fault is None:
                replica.ready = True
                if started:
                    logger.warning("a replica serves again")
            elif not started:
                kind, problem, mend = fault
                raise kind(problem, mend)
            else:
                logger.error("a replica cannot serve: %s", fault[1])

    def _bury(self, replica: _Replica, started: bool) -> None:
        """Replace a replica that has died.

        Raises:
            Unavailable: If it died before all replicas served.
        """
        self._replicas.remove(replica)
        replica.process.join(_TO_DIE)
        replica.line.close()
        mark_process_dead(replica.process.pid, os.environ[SHARED])
        if not started:
            raise Unavailable(f"a replica ended with status {replica.process.exitcode} before it served")
        steady = time.monotonic() - replica.since > _STEADY
        self._wait = _FIRST_WAIT if steady else min(2 * self._wait, _LONGEST_WAIT)
        self._to_start.append(time.monotonic() + (0.0 if steady else self._wait))
        logger.error("a replica has ended with status %s and is started again", replica.process.exitcode)

    def _pass_on(self, number: int, _: object) -> None:
        for replica in self._replicas:
            if replica.ready and replica.process.is_alive():
                os.kill(replica.process.pid, number)

    def _stop(self) -> None:
        for replica in self._replicas:
            replica.process.terminate()
        until = time.monotonic() + 2 * self._settings.drain + _TO_DIE
        for replica in self._replicas:
            replica.process.join(max(until - time.monotonic(), 0.0))
            if replica.process.is_alive():
                replica.process.kill()
                replica.process.join()


def _serve(
    opening: Callable[[], Serving], listener: socket.socket, prepare: Callable[[], None], line: Connection
) -> None:
    """Serve, in a process of its own; the target of a replica."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # no reload is needed while opening
    prepare()
    try:
        serving = opening()
    except TypedRAGError as error:
        kind = InputError if isinstance(error, InputError) else Unavailable
        line.send((kind, error.problem, error.mend))
        return
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()
    try:
        serving(listener, lambda: line.send(None))
    except KeyboardInterrupt:  # by Ctrl-C, which reaches all processes of a terminal
        os._exit(0)


def _end_with(line: Connection) -> None:
    """Shut down in order when the supervisor has ended."""
    try:
        line.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)


def serve_replicas(
    name: str,
    opening: Callable[[], Serving],
    settings: HTTPLimits,
    count: int,
    *,
    host: str,
    port: int,
    say: Callable[[str], None],
    prepare: Callable[[], None],
) -> None:
    """Serve by several processes until SIGTERM or SIGINT; see `serve` and `Replicas`.

    Raises:
        TypedRAGError: As `serve`.
    """
    say(exposure(host, settings))
    listener = listen(host, port)
    message = f"typedrag serves {name} at http://{host}:{listener.getsockname()[1]}"
    Replicas(opening, settings, listener, prepare).run(count, lambda: say(message))
