"""The executor `ray`: the questions of a run, answered and measured by the workers of a Ray cluster.

The process that begins a run keeps its loop, its limits and its files. A thread for each question under way hands it to
the worker with the fewest, waits, and goes on with what returned as if it had been made here. So the questions that a
worker has under way are its block. If it is lost, they alone go to others, and a new worker takes its place.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from typedrag import __version__
from typedrag.call_context import call_context
from typedrag.errors import CallFailed, TypedRAGError, Unavailable, first_line
from typedrag.experiments.evaluate.results import MetricResult
from typedrag.experiments.executors.ray_actors import Database, Hub, Place, Returned, Worker
from typedrag.experiments.executors.works import Work
from typedrag.lms.cost import charge, read_prices
from typedrag.question_types import QuestionType
from typedrag.records import Answer

logger = logging.getLogger(__name__)

_LIVES = 3
"""Workers that a question may lose, and that may be lost in a row while they begin."""
_GRACE = 10.0
"""Seconds in which calls of killed workers end."""
_NOTICE_AFTER = 30.0
"""Seconds without any worker after which this is said."""


@dataclass(eq=False)
class _Held:
    """A worker as the driver holds it.

    Attributes:
        name: By which the hub knows it.
        share: The LM calls that it may have in flight.
        handle: Ray's.
        ready: True once its program is built.
        under_way: Its questions and judgments.
    """

    name: str
    share: int
    handle: Any
    ready: bool = False
    under_way: int = 0


class RayWorkers:
    """Workers that do the same work, used within `ray_workers`; see `Executor`."""

    def __init__(
        self, work: Work, workers: int, *, threads: int, calls: int, databases: Mapping[str, Database]
    ) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._work, self._most_each = work, -(-threads // workers)
        self._folder, self._timeout, self._prices = Path.cwd(), call_context().timeout, read_prices()
        self._free = threading.Condition()
        self._workers: list[_Held] = []
        self._waiting = 0
        self._lost_beginning = 0
        self._fault: Exception | None = None
        self._began = time.monotonic()
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        hub = ray.remote(Hub).options(num_cpus=0, scheduling_strategy=here, max_restarts=-1, max_task_retries=-1)
        self._hub: Any = hub.remote(databases)
        for number in range(workers):
            self._start(calls // workers + (number < calls % workers))

    @property
    def ready(self) -> int:
        """The number of workers whose program is built."""
        return sum(worker.ready for worker in self._workers)

    def answer(self, example: dspy.Example, question_type: QuestionType | str | None = None) -> Answer:
        """See `Executor`."""
        answer: Answer = self.call("answer", example, question_type)
        return answer

    def measure(self, metric: str, example: dspy.Example, answer: Answer) -> MetricResult:
        """See `Executor`."""
        result: MetricResult = self.call("measure", metric, example, answer)
        return result

    def call(self, method: str, *arguments: Any, lives: int = _LIVES) -> Any:
        """Call a method of what a worker has opened; if the worker is lost, it is replaced and the call made again.

        Args:
            method: Its name.
            arguments: Sent to the worker.
            lives: Workers that the call may lose; more of them, and it is to blame.

        Raises:
            TypedRAGError: As the method does.
            Unavailable: If a worker cannot begin.
        """
        import ray

        for _ in range(lives):
            name = uuid.uuid4().hex
            with self._taken() as worker:
                try:
                    returned: Returned = self._result(worker.handle.call.remote(name, method, *arguments))
                except ray.exceptions.RayActorError as error:
                    self._replace(worker, error)
                    if spent := not self._fault and self._result(self._hub.spent.remote(name)):
                        charge(spent)
                    continue
            self._hub.spent.remote(name)
            for source, message in returned.warnings:
                logging.getLogger(source).warning("%s", message)
            if returned.spent:
                charge(returned.spent)
            if returned.error:
                raise returned.error
            return returned.value
        raise CallFailed(f"{lives} workers have died over it", "Have they enough memory? See Ray's logs")

    def close(self) -> None:
        """Stop the workers; calls under way end."""
        self._end(Unavailable("the run has ended"))
        for handle in (*(worker.handle for worker in self._workers), self._hub):
            _kill(handle)
        with self._free:  # Ray crashes if this process leaves it while threads wait for it
            self._free.wait_for(lambda: not self._waiting, _GRACE)

    @contextmanager
    def _taken(self) -> Iterator[_Held]:
        """The worker with the fewest questions, once one has room for another.

        Raises:
            Unavailable: If a worker cannot begin.
        """
        with self._free:
            while not (free := [w for w in self._workers if w.ready and w.under_way < self._most_each]):
                if self._fault:
                    break
                self._free.wait(_NOTICE_AFTER)
                if not self._fault and not self.ready and self._is_late():
                    logger.warning("no worker has begun yet: are the CPUs of the Ray cluster taken? See: ray status")
            if self._fault:
                raise self._fault
            worker = min(free, key=lambda worker: worker.under_way)
            worker.under_way += 1
        try:
            yield worker
        finally:
            with self._free:
                worker.under_way -= 1
                self._free.notify()

    def _is_late(self) -> bool:
        return time.monotonic() > self._began + _NOTICE_AFTER

    def _result(self, reference: Any) -> Any:
        import ray

        with self._free:
            self._waiting += 1
        try:
            return ray.get(reference)
        finally:
            with self._free:
                self._waiting -= 1
                self._free.notify_all()

    def _start(self, share: int) -> None:
        import ray

        name = uuid.uuid4().hex
        actor = ray.remote(Worker).options(num_cpus=1, max_concurrency=self._most_each + 2)
        with self._free:
            if self._fault:
                return
            worker = _Held(name, share, actor.remote(name))
            self._workers.append(worker)
        threading.Thread(target=self._begin, args=[worker], daemon=True).start()

    def _begin(self, worker: _Held) -> None:
        """Wait until a worker is ready; a fault of it ends the run."""
        import ray

        place = Place(__version__, self._folder, self._timeout, worker.share, self._prices)
        try:
            returned: Returned = self._result(worker.handle.begin.remote(place, self._work, self._hub))
        except ray.exceptions.RayActorError as error:
            self._lost_beginning += 1
            if self._lost_beginning < _LIVES:
                self._replace(worker, error)
            else:
                self._end(Unavailable(f"workers of Ray die as they begin: {first_line(error)}", "See Ray's logs"))
        except Exception as error:  # such as an import that a machine lacks; nobody else would tell of it
            self._end(Unavailable(f"a worker of Ray cannot begin: {_last_line(error)}", "Is typedrag installed there?"))
        else:
            if returned.error:
                self._end(_of_worker(returned.error))
                return
            self._lost_beginning = 0
            self._hub.join.remote(worker.name, worker.handle)
            with self._free:
                worker.ready = True
                self._free.notify_all()

    def _end(self, fault: Exception) -> None:
        """Let no call begin any more; the first reason is told."""
        with self._free:
            self._fault = self._fault or fault
            self._free.notify_all()

    def _replace(self, worker: _Held, error: Exception) -> None:
        """Start another worker for one that is lost; its threads all come here, and the first one does it."""
        with self._free:
            if self._fault or worker not in self._workers:
                return
            self._workers.remove(worker)
        logger.warning("a worker of Ray was lost (%s); another takes its place", first_line(error))
        _kill(worker.handle)  # it may be out of reach for a while only
        self._hub.lose.remote(worker.name)
        self._start(worker.share)


def _kill(handle: Any) -> None:
    import ray

    with suppress(ray.exceptions.RayError):
        ray.kill(handle)


@contextmanager
def ray_workers(
    work: Work, workers: int, *, threads: int, calls: int, databases: Mapping[str, Database] | None = None
) -> Iterator[RayWorkers]:
    """Workers of the Ray cluster that this process is connected to, until the end of the context.

    Args:
        work: What each of them does.
        workers: Their number.
        threads: Questions under way at once, over all of them.
        calls: LM calls in flight at once, over all of them.
        databases: Those that they share, by name.
    """
    pool = RayWorkers(work, workers, threads=threads, calls=calls, databases=databases or {})
    try:
        yield pool
    finally:
        pool.close()


def _of_worker(error: TypedRAGError) -> Unavailable:
    """The fault of a worker that cannot begin: whatever it is, no question is to blame."""
    if isinstance(error, Unavailable) and not isinstance(error, CallFailed):
        return error
    return Unavailable(f"a worker of Ray cannot begin: {error.problem}", error.mend)


def _last_line(error: Exception) -> str:
    """The last line of an error: Ray's begin with a traceback."""
    return first_line(Exception(str(error).strip().rpartition("\n")[2]))
