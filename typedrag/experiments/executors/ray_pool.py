"""The executor `ray`: the questions of a run, answered and measured by the workers of a Ray cluster.

The process that begins a run keeps its loop, its limits and its files. Each of its threads gives a question to the
worker with the fewest and waits for the result. If a worker is lost, its questions go to others, and Ray starts it
again.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from typedrag import __version__
from typedrag.core.call_context import call_context
from typedrag.core.errors import CallFailed, Unavailable, first_line
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer
from typedrag.experiments.evaluate.results import MetricResult
from typedrag.experiments.executors.jobs import JobSpec
from typedrag.experiments.executors.ray_worker import CallResult, Database, SharedState, Worker, WorkerConfig
from typedrag.lms.cost import charge, read_prices

logger = logging.getLogger(__name__)

_ATTEMPTS = 3
"""Workers that a question may lose, and times that a worker may be lost in a row while it begins."""
_GRACE = 10.0
"""Seconds in which calls of killed workers end."""
_NOTICE_AFTER = 30.0
"""Seconds without any worker after which this is said."""


@dataclass(eq=False)
class WorkerHandle:
    """A worker, as this process sees it.

    Attributes:
        actor: Ray's handle, which stays the same when Ray starts the worker again.
        ready: True while its job is set up.
        under_way: The number of its calls.
    """

    name: str
    actor: Any
    config: WorkerConfig
    ready: bool = False
    under_way: int = 0


class RayPool:
    """Workers that do the same job, used within `ray_pool`; see `Executor`."""

    def __init__(
        self, job: JobSpec, workers: int, *, threads: int, calls: int, databases: Mapping[str, Database]
    ) -> None:
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
        self._shared: Any = shared.remote(databases)
        actor = ray.remote(Worker).options(num_cpus=1, max_restarts=-1, max_concurrency=self._most_each + 2)
        folder, timeout, prices = Path.cwd(), call_context().timeout, read_prices()
        self._workers = []
        for number in range(workers):
            name, share = uuid.uuid4().hex, calls // workers + (number < calls % workers)
            config = WorkerConfig(__version__, folder, timeout, share, prices)
            self._workers.append(WorkerHandle(name, actor.remote(name), config))
        for worker in self._workers:
            self._setup(worker)

    @property
    def ready(self) -> int:
        """The number of workers whose job is set up."""
        return sum(worker.ready for worker in self._workers)

    def answer(self, example: dspy.Example, question_type: QuestionType | str | None = None) -> Answer:
        """See `Executor`."""
        answer: Answer = self.call("answer", example, question_type)
        return answer

    def measure(self, metric: str, example: dspy.Example, answer: Answer) -> MetricResult:
        """See `Executor`."""
        result: MetricResult = self.call("measure", metric, example, answer)
        return result

    def call(self, method: str, *arguments: Any, attempts: int = _ATTEMPTS) -> Any:
        """Call a method of what a worker has set up; if the worker is lost, another gets the call.

        Args:
            method: Its name.
            arguments: Sent to the worker.
            attempts: Workers that the call may lose; more of them, and it is to blame.
        """
        import ray

        for _ in range(attempts):
            name = uuid.uuid4().hex
            with self._free_worker() as worker:
                try:
                    result: CallResult = self._get(worker.actor.call.remote(name, method, *arguments))
                except ray.exceptions.RayActorError as error:
                    self._restart(worker, error)
                    if spent := not self._fault and self._get(self._shared.pop_spent.remote(name)):
                        charge(spent)
                    continue
            self._shared.pop_spent.remote(name)
            for source, message in result.warnings:
                logging.getLogger(source).warning("%s", message)
            if result.spent:
                charge(result.spent)
            if result.error:
                raise result.error
            return result.value
        raise CallFailed(f"{attempts} workers have died over it", "Have they enough memory? See Ray's logs")

    def close(self) -> None:
        """Stop the workers; calls under way end."""
        import ray

        self._end(Unavailable("the run has ended"))
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

    def _setup(self, worker: WorkerHandle) -> None:
        """Let a worker set up its job; `_on_setup` hears how that ends."""
        setup = worker.actor.setup.options(max_task_retries=_ATTEMPTS - 1)
        reference = setup.remote(worker.config, self._job, self._shared, worker.actor)
        with self._changed:
            self._pending += 1
        reference.future().add_done_callback(lambda done: self._on_setup(worker, done))

    def _on_setup(self, worker: WorkerHandle, done: Future[CallResult]) -> None:
        """Note that a worker is ready; a fault of it ends the run, and no question is to blame."""
        import ray

        fault: Exception | None = None
        try:
            error = done.result().error
        except ray.exceptions.RayActorError as died:
            fault = Unavailable(f"workers of Ray die as they begin: {first_line(died)}", "See Ray's logs")
        except Exception as missing:  # such as an import that a machine lacks; Ray's errors begin with a traceback
            problem = str(missing).strip().rpartition("\n")[2]
            fault = Unavailable(f"a worker of Ray cannot begin: {problem}", "Is typedrag installed there?")
        else:
            fault = error
            if error and (isinstance(error, CallFailed) or not isinstance(error, Unavailable)):
                fault = Unavailable(f"a worker of Ray cannot begin: {error.problem}", error.hint)
        if fault:
            self._end(fault)
        with self._changed:
            worker.ready = not fault
            self._pending -= 1
            self._changed.notify_all()

    def _end(self, fault: Exception) -> None:
        """Let no call begin any more; the first reason is told."""
        with self._changed:
            self._fault = self._fault or fault
            self._changed.notify_all()

    def _restart(self, worker: WorkerHandle, error: Exception) -> None:
        """Set up a lost worker, which Ray starts again; its threads all come here, and the first one does it."""
        with self._changed:
            if self._fault or not worker.ready:
                return
            worker.ready = False
        logger.warning("a worker of Ray was lost (%s); another takes its place", first_line(error))
        self._shared.release.remote(worker.name)
        self._setup(worker)


@contextmanager
def ray_pool(
    job: JobSpec, workers: int, *, threads: int, calls: int, databases: Mapping[str, Database] | None = None
) -> Iterator[RayPool]:
    """Workers of the Ray cluster that this process is connected to, until the end of the context.

    Args:
        job: What each of them does.
        workers: Their number.
        threads: Questions under way at once, over all of them.
        calls: LM calls in flight at once, over all of them.
        databases: Those that they share, by name.
    """
    pool = RayPool(job, workers, threads=threads, calls=calls, databases=databases or {})
    try:
        yield pool
    finally:
        pool.close()
