"""The executor `ray`: the questions of a run, answered and measured by the workers of a Ray cluster.

The process that begins a run keeps its loop, its limits and its files. Each of its threads gives a question to the
worker with the fewest and waits for the result. If a worker is lost, its questions go to others, and Ray starts it
again.
"""

from __future__ import annotations

import contextvars
import ctypes
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from typedrag import __version__
from typedrag.core.call_context import call_context, set_context
from typedrag.core.errors import CallFailed, InputError, TypedRAGError, Unavailable, first_line
from typedrag.core.extras import require
from typedrag.files.database import SQLite, Tables
from typedrag.lms.cost import CostTracker, Spending, charge, read_prices, track_cost, use_prices

if TYPE_CHECKING:
    import dspy

    from typedrag.core.question_types import QuestionType
    from typedrag.core.records import Answer
    from typedrag.experiments.results import MetricResult

logger = logging.getLogger(__name__)

# what a worker does: gives the object whose methods the worker calls, such as an `Executor`; it is small to send, and
# called with the store of LM replies that all workers share, if they share any, and the worker's name
JobSpec: TypeAlias = Callable[[Tables | None, str], AbstractContextManager[Any]]
_FORMS = "local, ray, ray:auto, ray:HOST:PORT or ray://HOST:PORT"
_CLIENT = "ray://"
_CONNECT_TIMEOUT = 5.0
_TOKEN = "~/.ray/auth_token"
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
_SIGACTION_BYTES = 512  # more than `struct sigaction` takes on any system
_START = "Is it running? Start one: ray start --head"
_ATTEMPTS = 3
"""Workers that a question may lose, and times that a worker may be lost in a row while it begins."""
_GRACE = 10.0  # seconds in which calls of killed workers end
_NOTICE_AFTER = 30.0  # seconds without any worker after which this is said


def ray_address(executor: str) -> str | None:
    """The address of the Ray cluster that an executor names, empty for that of `RAY_ADDRESS` or a new one; None for
    `local`.

    Example:
        >>> ray_address("local"), ray_address("ray"), ray_address("ray:auto"), ray_address("ray://head:10001")
        (None, '', 'auto', 'ray://head:10001')
    """
    kind, colon, address = executor.partition(":")
    if executor == "local":
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

    By default there is a worker for each CPU that has something to do: `threads` questions and `calls` LM calls are
    under way at once, over all workers.
    """
    address, most = ray_address(executor), min(threads, calls)
    if address is None:
        if workers is not None:
            raise InputError("--workers are of --executor ray", "Leave them out, or add it")
        yield 0
        return
    require("ray")
    # `ray start` asks for this user's token, but only a new local Ray shows it; Ray reads this as it is imported
    if os.environ.get("RAY_AUTH_TOKEN") or Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or _TOKEN).expanduser().is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
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
            with _preserve_signals():
                ray.shutdown()


def _init(address: str, workers: int | None) -> None:
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    ray._private.worker._worker_logs_enabled = False  # it reports lost workers on stdout, amid the answers
    host, _, port = address.removeprefix(_CLIENT).partition("/")[0].rpartition(":")
    if port.isdecimal():  # Ray itself would try for minutes
        try:
            socket.create_connection((host, int(port)), _CONNECT_TIMEOUT).close()
        except OSError as error:
            raise Unavailable(f"no Ray cluster answers at {address}: {error.strerror or error}", _START) from None
    try:
        with _preserve_signals():
            if address:
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


def is_one_machine() -> bool:
    import ray

    return len([node for node in ray.nodes() if node["Alive"]]) == 1


@contextmanager
def _preserve_signals() -> Iterator[None]:
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


class SharedState:
    """An actor on the machine where the run was begun: the workers' store of LM replies, pauses and spending."""

    def __init__(self, replies: Path | None) -> None:
        self._tables: SQLite | None = None
        if replies:
            from typedrag.lms.replies import HELD, TABLES  # an actor begins the sooner, the less it has to import

            self._tables = SQLite(replies, HELD, *TABLES)
        self._workers: dict[str, Any] = {}
        self._spent: dict[str, Spending] = {}

    def run(self, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]] | TypedRAGError:
        assert self._tables, "jobs that share replies name their file"
        try:
            return self._tables.run(statement, **values)
        except TypedRAGError as error:
            return error

    def add_worker(self, worker: str, actor: Any) -> None:
        from typedrag.lms.client import RETRY_AFTER

        self._workers[worker] = actor
        for server, seconds in RETRY_AFTER.all_remaining.items():
            actor.pause.remote(server, seconds)

    def release(self, worker: str) -> None:
        if self._tables:
            from typedrag.lms.replies import RELEASE_ALL

            self.run(RELEASE_ALL, {"worker": worker})

    def add_spent(self, call: str, spent: Spending) -> None:
        """Add to what a call under way has spent: its worker may be lost before it returns."""
        self._spent[call] = self._spent.get(call, Spending()) + spent

    def pop_spent(self, call: str) -> Spending | None:
        return self._spent.pop(call, None)

    def pause(self, server: str, seconds: float) -> None:
        from typedrag.lms.client import RETRY_AFTER

        RETRY_AFTER.set(server, seconds, notify=False)
        for actor in self._workers.values():
            actor.pause.remote(server, seconds)


@dataclass(frozen=True)
class _SharedTables:
    shared: Any

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        import ray

        rows = ray.get(self.shared.run.remote(statement, values))
        if isinstance(rows, TypedRAGError):
            raise rows
        return rows

    def close(self) -> None:
        """Leave the file open for the others."""


class CallResult(NamedTuple):
    value: Any = None
    error: TypedRAGError | None = None
    spent: Spending | None = None
    warnings: tuple[logging.LogRecord, ...] = ()


class Worker:
    """An actor of a run; its job is set up once, and called from several threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stack = ExitStack()
        self._warnings: SimpleQueue[logging.LogRecord] = SimpleQueue()
        self._target: Any = None

    def setup(
        self, started: object, taken_over: Mapping[str, Any], calls: int, job: JobSpec, shared: Any, actor: Any
    ) -> CallResult:
        """Set up the job, unless that was done: a worker may only have been out of reach.

        It takes over settings of the process where the run was begun, such as the folder from which relative paths
        count, and may have so many LM calls in flight.
        """
        from typedrag.lms.client import RETRY_AFTER, limit_calls_in_flight

        if self._target is not None:
            return CallResult()
        if taken_over["version"] != __version__:
            problem = f"the workers on {os.uname().nodename} have typedrag {__version__}, not {taken_over['version']}"
            return CallResult(error=Unavailable(problem, "Install the same"))
        with suppress(OSError):  # a machine that does not have it may not need it
            os.chdir(taken_over["folder"])
        set_context(timeout=taken_over["timeout"])
        limit_calls_in_flight(calls)
        self._shared = shared
        RETRY_AFTER.on_set = lambda server, seconds: shared.pause.remote(server, seconds)
        collector = QueueHandler(self._warnings)
        collector.setLevel(logging.WARNING)
        logging.getLogger("typedrag").addHandler(collector)
        try:
            use_prices(taken_over["prices"])
            replies = _SharedTables(shared) if taken_over["replies"] else None
            self._target = self._stack.enter_context(job(replies, self._name))
        except TypedRAGError as error:
            return CallResult(error=error)
        self._context = contextvars.copy_context()  # threads of Ray carry none
        shared.add_worker.remote(self._name, actor)
        return CallResult()

    def pause(self, server: str, seconds: float) -> None:
        from typedrag.lms.client import RETRY_AFTER

        RETRY_AFTER.set(server, seconds, notify=False)

    def call(self, call: str, method: str, *arguments: Any) -> CallResult:
        """Call a method of what the job has set up; what it spends is shared under the name of the call."""

        def work() -> CallResult:
            value, fault = None, None
            with track_cost(CostTracker(listener=lambda spent: self._shared.add_spent.remote(call, spent))) as account:
                try:
                    value = getattr(self._target, method)(*arguments)
                except TypedRAGError as error:
                    fault = error
            warnings = tuple(self._warnings.get() for _ in range(self._warnings.qsize()))
            return CallResult(value, fault, account.spent, warnings)

        return self._context.copy().run(work)


@dataclass(eq=False)
class WorkerHandle:
    """A worker, as this process sees it; Ray's handle stays the same when Ray starts the worker again."""

    name: str
    actor: Any
    calls: int
    ready: bool = False
    under_way: int = 0


class RayPool:
    """Workers of the connected Ray cluster that do the same job until `close`; see `Executor`.

    `threads` questions and `calls` LM calls are under way at once, over all workers, which share the file of LM
    replies.
    """

    def __init__(self, job: JobSpec, workers: int, *, threads: int, calls: int, replies: Path | None = None) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._job, self._most_each = job, -(-threads // workers)
        self._changed = threading.Condition()
        self._pending = 0
        self._fault: Exception | None = None
        self._began = time.monotonic()
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        shared = ray.remote(SharedState).options(
            num_cpus=0, scheduling_strategy=here, max_restarts=-1, max_task_retries=-1
        )
        self._shared: Any = shared.remote(replies and replies.resolve())
        actor = ray.remote(Worker).options(num_cpus=1, max_restarts=-1, max_concurrency=self._most_each + 2)
        self._taken_over = {
            "version": __version__, "folder": Path.cwd(), "timeout": call_context().timeout, "prices": read_prices(),
            "replies": replies is not None,
        }  # fmt: skip
        self._workers = []
        for number in range(workers):
            name, share = uuid.uuid4().hex, calls // workers + (number < calls % workers)
            self._workers.append(WorkerHandle(name, actor.remote(name), share))
        for worker in self._workers:
            self._setup(worker)

    @property
    def ready(self) -> int:
        return sum(worker.ready for worker in self._workers)

    def answer(self, example: dspy.Example, question_type: QuestionType | str | None = None) -> Answer:
        return self.call("answer", example, question_type)

    def measure(self, metric: str, example: dspy.Example, answer: Answer) -> MetricResult:
        return self.call("measure", metric, example, answer)

    def call(self, method: str, *arguments: Any, attempts: int = _ATTEMPTS) -> Any:
        """Call a method of what a worker has set up; if the worker is lost, another gets the call.

        A call that loses more workers than `attempts` is to blame itself.
        """
        import ray

        for _ in range(attempts):
            name = uuid.uuid4().hex
            with self._free_worker() as worker:
                try:
                    result: CallResult = self._get(worker.actor.call.remote(name, method, *arguments))
                except ray.exceptions.RayActorError as error:
                    with self._changed:  # all threads of a lost worker come here; the first sets it up again
                        is_first = worker.ready and not self._fault
                        worker.ready = worker.ready and not is_first
                    if is_first:
                        logger.warning("a worker of Ray was lost (%s); another takes its place", first_line(error))
                        self._shared.release.remote(worker.name)
                        self._setup(worker)
                    if spent := not self._fault and self._get(self._shared.pop_spent.remote(name)):
                        charge(spent)
                    continue
            self._shared.pop_spent.remote(name)
            for record in result.warnings:
                logging.getLogger(record.name).handle(record)
            if result.spent:
                charge(result.spent)
            if result.error:
                raise result.error
            return result.value
        raise CallFailed(f"{attempts} workers have died over it", "Have they enough memory? See Ray's logs")

    def close(self) -> None:
        """Stop the workers; calls under way end."""
        import ray

        with self._changed:
            self._fault = self._fault or Unavailable("the run has ended")
            self._changed.notify_all()
        for actor in (*(worker.actor for worker in self._workers), self._shared):
            with suppress(ray.exceptions.RayError):
                ray.kill(actor)
        with self._changed:  # Ray crashes if this process leaves it while threads wait for it
            self._changed.wait_for(lambda: not self._pending, _GRACE)

    @contextmanager
    def _free_worker(self) -> Iterator[WorkerHandle]:
        """The worker with the fewest calls, once one has room for another."""
        with self._changed:
            while not (free := [w for w in self._workers if w.ready and w.under_way < self._most_each]):
                if self._fault:
                    break
                self._changed.wait(_NOTICE_AFTER)
                if not self._fault and not self.ready and time.monotonic() > self._began + _NOTICE_AFTER:
                    logger.warning("no worker has begun yet: are the CPUs of the Ray cluster taken? See: ray status")
            if self._fault:
                raise self._fault
            worker = min(free, key=lambda worker: worker.under_way)
            worker.under_way += 1
        try:
            yield worker
        finally:
            with self._changed:
                worker.under_way -= 1
                self._changed.notify()

    def _get(self, reference: Any) -> Any:
        import ray

        with self._changed:
            self._pending += 1
        try:
            return ray.get(reference)
        finally:
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()

    def _setup(self, worker: WorkerHandle, attempts: int = _ATTEMPTS) -> None:
        """Let a worker set up its job; a fault of it ends the run, and no question is to blame."""
        import ray

        def finish(done: Future[CallResult]) -> None:
            fault: Exception | None = None
            retried = False
            try:
                fault = error = done.result().error
                if error and (isinstance(error, CallFailed) or not isinstance(error, Unavailable)):
                    fault = Unavailable(f"a worker of Ray cannot begin: {error.problem}", error.hint)
            except ray.exceptions.RayActorError as died:
                if retried := attempts > 1 and not self._fault:
                    self._setup(worker, attempts - 1)
                else:
                    fault = Unavailable(f"workers of Ray die as they begin: {first_line(died)}", "See Ray's logs")
            except Exception as missing:  # such as an import that a machine lacks; Ray's errors begin with a traceback
                problem = str(missing).strip().rpartition("\n")[2]
                fault = Unavailable(f"a worker of Ray cannot begin: {problem}", "Is typedrag installed there?")
            with self._changed:
                self._fault = self._fault or fault  # the first is reported, and no call begins any more
                if not (fault or retried):
                    worker.ready = True
                self._pending -= 1
                self._changed.notify_all()

        # Ray fails a call while it starts an actor again, even if that takes minutes on a busy machine
        started = worker.actor.__ray_ready__.options(max_task_retries=-1).remote()
        settings = self._taken_over, worker.calls, self._job, self._shared, worker.actor
        reference = worker.actor.setup.remote(started, *settings)
        with self._changed:
            self._pending += 1
        reference.future().add_done_callback(finish)
