"""The actors of a run on a Ray cluster: its workers, and the state that they share: databases, pauses, spending."""

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
from typedrag.core.errors import TypedRAGError, Unavailable
from typedrag.files.database import SQLite

if TYPE_CHECKING:
    from typedrag.experiments.executors.jobs import JobSpec
    from typedrag.lms.cost import Price, Spending

_WARNINGS_HELD = 20


class Database(NamedTuple):
    """An SQLite file that workers share; see `SQLite`."""

    path: Path
    holds: str
    tables: tuple[str, ...]
    release: str = ""
    """The statement that gives up what a lost `worker` has claimed."""


class SharedState:
    """The databases and pauses of all workers of a run; on the machine where the run was begun."""

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

    def add_worker(self, worker: str, actor: Any) -> None:
        """Tell a worker of pauses from now on."""
        from typedrag.lms.client import RETRY_AFTER

        self._workers[worker] = actor
        for server, seconds in RETRY_AFTER.all_remaining.items():
            actor.pause.remote(server, seconds)

    def release(self, worker: str) -> None:
        """Release what a lost worker has claimed."""
        for name, statement in self._releases.items():
            self.run(name, statement, {"worker": worker})

    def add_spent(self, call: str, spent: Spending) -> None:
        """Add to what a call under way has spent: its worker may be lost before it returns."""
        self._spent[call] = self._spent[call] + spent if call in self._spent else spent

    def pop_spent(self, call: str) -> Spending | None:
        """The spending of a call, which is then forgotten; None for nothing."""
        return self._spent.pop(call, None)

    def pause(self, server: str, seconds: float) -> None:
        """Tell all workers of a pause that an LM server has asked one of them for."""
        from typedrag.lms.client import RETRY_AFTER

        RETRY_AFTER.set(server, seconds, notify=False)
        for actor in self._workers.values():
            actor.pause.remote(server, seconds)


@dataclass(frozen=True)
class WorkerConfig:
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
class CallResult:
    """The outcome of a call: a value or an error, what was spent, and the warnings logged since the last one."""

    value: Any = None
    error: TypedRAGError | None = None
    spent: Spending | None = None
    warnings: tuple[tuple[str, str], ...] = ()


class Worker:
    """A worker of a run; its job is set up once, and called from several threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stack = ExitStack()
        self._warnings: deque[tuple[str, str]] = deque(maxlen=_WARNINGS_HELD)
        self._target: Any = None

    def setup(self, config: WorkerConfig, job: JobSpec, shared: Any, actor: Any) -> CallResult:
        """Set up the job, unless that was done: a worker may only have been out of reach."""
        if self._target is not None:
            return CallResult()
        try:
            if config.version != __version__:
                machine = os.uname().nodename
                raise Unavailable(
                    f"the workers on {machine} have typedrag {__version__}, not {config.version}", "Install the same"
                )
            self._setup(config, job, shared)
        except TypedRAGError as error:
            return CallResult(error=error)
        shared.add_worker.remote(self._name, actor)
        return CallResult()

    def _setup(self, config: WorkerConfig, job: JobSpec, shared: Any) -> None:
        from typedrag.core.call_context import set_context
        from typedrag.lms.client import RETRY_AFTER, limit_calls_in_flight
        from typedrag.lms.cost import use_prices

        with suppress(OSError):  # a machine that does not have it may not need it
            os.chdir(config.folder)
        set_context(timeout=config.timeout)
        limit_calls_in_flight(config.calls)
        use_prices(config.prices)
        self._shared = shared
        RETRY_AFTER.on_set = lambda server, seconds: shared.pause.remote(server, seconds)
        logging.getLogger("typedrag").addHandler(_WarningCollector(self._warnings))
        self._target = self._stack.enter_context(job.setup(lambda name: _SharedTables(shared, name), self._name))
        self._context = contextvars.copy_context()  # threads of Ray carry none

    def pause(self, server: str, seconds: float) -> None:
        """Keep a pause that an LM server has asked another worker for."""
        from typedrag.lms.client import RETRY_AFTER

        RETRY_AFTER.set(server, seconds, notify=False)

    def call(self, call: str, method: str, *arguments: Any) -> CallResult:
        """Call a method of what the job has set up; what it spends is shared under the name of the call."""
        return self._context.copy().run(self._call, call, method, arguments)

    def _call(self, call: str, method: str, arguments: tuple[Any, ...]) -> CallResult:
        from typedrag.lms.cost import CostTracker, track_cost

        value, fault = None, None
        with track_cost(CostTracker(listener=lambda spent: self._shared.add_spent.remote(call, spent))) as account:
            try:
                value = getattr(self._target, method)(*arguments)
            except TypedRAGError as error:
                fault = error
        warnings = tuple(self._warnings.popleft() for _ in range(len(self._warnings)))
        return CallResult(value, fault, account.spent, warnings)


class _SharedTables:
    """The tables of a shared database, as a worker sees them; see `Tables`."""

    def __init__(self, shared: Any, name: str) -> None:
        self._shared, self._name = shared, name

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """See `SQLite.run`."""
        import ray

        rows = ray.get(self._shared.run.remote(self._name, statement, values))
        if isinstance(rows, TypedRAGError):
            raise rows
        return rows

    def close(self) -> None:
        """Leave the file open for the others."""


class _WarningCollector(logging.Handler):
    """Collects warnings, by their logger, for the process where the run was begun."""

    def __init__(self, warnings: deque[tuple[str, str]]) -> None:
        super().__init__(logging.WARNING)
        self._warnings = warnings

    def emit(self, record: logging.LogRecord) -> None:
        self._warnings.append((record.name, record.getMessage()))
