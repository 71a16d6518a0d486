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
from typedrag.errors import CallFailed, TypedRAGError, Unavailable, first_line
from typedrag.experiments.evaluate.results import MetricResult
from typedrag.experiments.executors.ray_actors import Database, Hub, Place, Returned, Worker
from typedrag.experiments.executors.works import Work
from typedrag.lms.patience import timeout_given
from typedrag.lms.spending import charge
from typedrag.records import Answer

logger = logging.getLogger(__name__)

_LIVES = 3
"""Workers that a question may lose, and that may be lost in a row while they begin."""
_NOTICE_AFTER = 30.0
"""Seconds without any worker after which this is said."""


@dataclass
class _Held:
    """A worker as the driver holds it.

    Attributes:
        share: The LM calls that it may have in flight.
        under_way: Its questions and judgments.
    """

    name: str
    share: int
    handle: Any = None
    under_way: int = 0
    lost: bool = False


class RayWorkers:
    """Workers that do the same work, used within `ray_workers`; see `Executor`."""

    def __init__(
        self, work: Work, workers: int, *, threads: int, calls: int, databases: Mapping[str, Database]
    ) -> None:
        self._work, self._most_each = work, -(-threads // workers)
        self._free = threading.Condition()
        self._ready: list[_Held] = []
        self._fault: Exception | None = None
        self._lost_beginning = 0
        self._began = time.monotonic()
        self._hub = self._start_hub(databases)
        for number in range(workers):
            self._start(calls // workers + (number < calls % workers))

    def answer(self, question: str) -> Answer:
        """See `Executor`."""
        answer: Answer = self._call("answer", question)
        return answer

    def measure(self, metric: str, example: dspy.Example, answer: Answer) -> MetricResult:
        """See `Executor`."""
        result: MetricResult = self._call("measure", metric, example, answer)
        return result

    def close(self) -> None:
        """Stop the workers; calls that wait for one end."""
        import ray

        with self._free:
            self._fault = self._fault or Unavailable("the run has ended")
            workers, self._ready = self._ready, []
            self._free.notify_all()
        for handle in (*(worker.handle for worker in workers), self._hub):
            with suppress(ray.exceptions.RayError):
                ray.kill(handle)

    def _call(self, method: str, *arguments: Any) -> Any:
        import ray

        for _ in range(_LIVES):
            with self._taken() as worker:
                try:
                    returned: Returned = ray.get(worker.handle.call.remote(method, *arguments))
                except ray.exceptions.RayActorError as error:
                    self._lose(worker, error)
                    continue
            for name, message in returned.warnings:
                logging.getLogger(name).warning("%s", message)
            if returned.spent:
                charge(returned.spent)
            if returned.error:
                raise returned.error
            return returned.value
        raise CallFailed(f"{_LIVES} workers have died over it", "Have they enough memory? See Ray's logs")

    @contextmanager
    def _taken(self) -> Iterator[_Held]:
        """The worker with the fewest questions, once one has room for another."""
        with self._free:
            while not (free := [w for w in self._ready if w.under_way < self._most_each]):
                if self._fault:
                    raise self._fault
                self._free.wait(_NOTICE_AFTER)
                if not self._ready and not self._fault and time.monotonic() > self._began + _NOTICE_AFTER:
                    logger.warning("no worker has begun yet: are the CPUs of the Ray cluster taken? See: ray status")
            worker = min(free, key=lambda worker: worker.under_way)
            worker.under_way += 1
        try:
            yield worker
        finally:
            with self._free:
                worker.under_way -= 1
                self._free.notify()

    def _start_hub(self, databases: Mapping[str, Database]) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(Hub).options(num_cpus=0, scheduling_strategy=here, max_restarts=-1, max_task_retries=-1)
        return actor.remote(databases)

    def _start(self, share: int) -> None:
        threading.Thread(target=self._begin, args=[share], daemon=True).start()

    def _begin(self, share: int) -> None:
        """Start a worker and wait until it is ready; a fault of it ends the run."""
        import ray

        name = uuid.uuid4().hex
        worker = _Held(name, share)
        try:
            options = {"num_cpus": 1, "max_concurrency": self._most_each + 2}
            worker.handle = ray.remote(Worker).options(**options).remote(name)
            place = Place(__version__, Path.cwd(), timeout_given.get(), share)
            returned: Returned = ray.get(worker.handle.begin.remote(place, self._work, self._hub))
            fault = returned.error and _of_worker(returned.error)
        except ray.exceptions.RayActorError as error:
            self._lost_beginning += 1
            if self._lost_beginning < _LIVES:
                self._lose(worker, error)
                return
            fault = Unavailable(f"workers of Ray die as they begin: {first_line(error)}", "See Ray's logs")
        except Exception as error:  # such as an import that a machine lacks; nobody else would tell of it
            fault = Unavailable(f"a worker of Ray cannot begin: {_last_line(error)}", "Is typedrag installed there?")
        with self._free:
            closed = self._fault is not None
            if fault:
                self._fault = self._fault or fault
            elif not closed:
                self._lost_beginning = 0
                self._ready.append(worker)
                self._hub.join.remote(name, worker.handle)
            self._free.notify_all()
        if closed and worker.handle is not None:
            ray.kill(worker.handle)

    def _lose(self, worker: _Held, error: Exception) -> None:
        """Replace a worker that is lost; its threads all come here, and the first one does it."""
        import ray

        with self._free:
            if self._fault or worker.lost:
                return
            worker.lost = True
            self._ready = [other for other in self._ready if other is not worker]
        logger.warning("a worker of Ray was lost (%s); another takes its place", first_line(error))
        with suppress(ray.exceptions.RayError):
            ray.kill(worker.handle)  # it may be out of reach for a while only
        self._hub.lose.remote(worker.name)
        self._start(worker.share)


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
