"""The actors in the processes of a Ray cluster: workers, and a hub through which they share databases and pauses."""

from __future__ import annotations

import contextvars
import logging
import os
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from typedrag import __version__
from typedrag.errors import TypedRAGError, Unavailable
from typedrag.files.database import SQLite

if TYPE_CHECKING:
    from typedrag.experiments.executors.works import Work
    from typedrag.lms.cost import Price, Spending

_WARNINGS_HELD = 20


class Database(NamedTuple):
    """An SQLite file for the hub to open; see `SQLiteFile`."""

    path: Path
    holds: str
    tables: tuple[str, ...]
    release: str = ""
    """The statement that gives up what a lost `worker` has claimed."""


class Hub:
    """Databases and pauses of all workers of a run; on the machine where the run was begun."""

    def __init__(self, databases: Mapping[str, Database]) -> None:
        self._releases = {name: database.release for name, database in databases.items() if database.release}
        self._files = {name: SQLite(d.path, d.holds, *d.tables) for name, d in databases.items()}
        self._workers: dict[str, Any] = {}
        self._spent: dict[str, Spending] = {}

    def run(self, name: str, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]] | TypedRAGError:
        """The rows of a statement, or the error to raise."""
        try:
            return self._files[name].run(statement, **values)
        except TypedRAGError as error:
            return error

    def join(self, worker: str, handle: Any) -> None:
        """Let a worker hear of pauses."""
        from typedrag.lms.client import RETRY_AFTER

        self._workers[worker] = handle
        for server, seconds in RETRY_AFTER.all_remaining.items():
            handle.hold.remote(server, seconds)

    def lose(self, worker: str) -> None:
        """Release what a worker that is lost has claimed."""
        self._workers.pop(worker, None)
        for name, statement in self._releases.items():
            self.run(name, statement, {"worker": worker})

    def spend(self, call: str, spent: Spending) -> None:
        """Note what a call under way has spent: its worker may be lost before it returns."""
        self._spent[call] = self._spent[call] + spent if call in self._spent else spent

    def spent(self, call: str) -> Spending | None:
        """The spending of a call, which is then forgotten; None for nothing."""
        return self._spent.pop(call, None)

    def hold(self, server: str, seconds: float) -> None:
        """Tell all workers of a pause that an LM server has asked one of them for."""
        from typedrag.lms.client import RETRY_AFTER

        RETRY_AFTER.set(server, seconds, notify=False)
        for handle in self._workers.values():
            handle.hold.remote(server, seconds)


@dataclass(frozen=True)
class Place:
    """The settings that a worker takes over from the process where the run was begun.

    Attributes:
        folder: Its working folder, from which relative paths count.
        timeout: Seconds for an LM's reply, if they are given for the whole process.
        calls: LM calls that this worker may have in flight.
        prices: The user's own, by model.
    """

    version: str
    folder: Path
    timeout: float | None
    calls: int
    prices: Mapping[str, Price]


@dataclass(frozen=True)
class Returned:
    """The outcome of a call: a value or an error, what was spent, and the warnings logged since the last one."""

    value: Any
    error: TypedRAGError | None
    spent: Spending | None = None
    warnings: tuple[tuple[str, str], ...] = ()


class Worker:
    """A worker of a run; its program is built once, and asked from several threads.

    Attributes:
        name: By which the hub knows it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._stack = ExitStack()
        self._warnings: deque[tuple[str, str]] = deque(maxlen=_WARNINGS_HELD)

    def begin(self, place: Place, work: Work, hub: Any) -> Returned:
        """Build the program; the value is the id of this process."""
        try:
            if place.version != __version__:
                machine = os.uname().nodename
                raise Unavailable(
                    f"the workers on {machine} have typedrag {__version__}, not {place.version}", "Install the same"
                )
            self._begin(place, work, hub)
        except TypedRAGError as error:
            return Returned(None, error)
        return Returned(os.getpid(), None)

    def _begin(self, place: Place, work: Work, hub: Any) -> None:
        from typedrag.call_context import set_context
        from typedrag.lms.client import RETRY_AFTER, limit_calls_in_flight
        from typedrag.lms.cost import use_prices

        with suppress(OSError):  # a machine that does not have it may not need it
            os.chdir(place.folder)
        set_context(timeout=place.timeout)
        limit_calls_in_flight(place.calls)
        use_prices(place.prices)
        self._hub = hub
        RETRY_AFTER.on_set = lambda server, seconds: hub.hold.remote(server, seconds)
        logging.getLogger("typedrag").addHandler(_Gathered(self._warnings))
        self._executor = self._stack.enter_context(work.opened(lambda name: _Shared(hub, name), self.name))
        self._context = contextvars.copy_context()  # threads of Ray carry none

    def hold(self, server: str, seconds: float) -> None:
        """Keep a pause that an LM server has asked another worker for."""
        from typedrag.lms.client import RETRY_AFTER

        RETRY_AFTER.set(server, seconds, notify=False)

    def call(self, call: str, method: str, *arguments: Any) -> Returned:
        """Call a method of the executor; the hub hears under the name of the call what it spends."""
        return self._context.copy().run(self._call, call, method, arguments)

    def _call(self, call: str, method: str, arguments: tuple[Any, ...]) -> Returned:
        from typedrag.lms.cost import CostTracker, track_cost

        value, fault = None, None
        with track_cost(CostTracker(listener=lambda spent: self._hub.spend.remote(call, spent))) as account:
            try:
                value = getattr(self._executor, method)(*arguments)
            except TypedRAGError as error:
                fault = error
        warnings = tuple(self._warnings.popleft() for _ in range(len(self._warnings)))
        return Returned(value, fault, account.spent, warnings)


class _Shared:
    """The tables of a hub's database, as a worker sees them; see `Tables`."""

    def __init__(self, hub: Any, name: str) -> None:
        self._hub, self._name = hub, name

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """See `SQLiteFile.run`."""
        import ray

        rows = ray.get(self._hub.run.remote(self._name, statement, values))
        if isinstance(rows, TypedRAGError):
            raise rows
        return rows

    def close(self) -> None:
        """Leave the file open for the others."""


class _Gathered(logging.Handler):
    """Gathers warnings, by their logger, for the process where the run was begun."""

    def __init__(self, warnings: deque[tuple[str, str]]) -> None:
        super().__init__(logging.WARNING)
        self._into = warnings

    def emit(self, record: logging.LogRecord) -> None:
        self._into.append((record.name, record.getMessage()))
