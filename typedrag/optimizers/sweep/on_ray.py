"""A sweep by workers of a Ray cluster, each of which is a worker of the study as any other process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from typedrag.errors import InputError
from typedrag.experiments.executors.ray_cluster import connected, is_one_machine
from typedrag.experiments.executors.ray_workers import ray_workers
from typedrag.files.database import Tables
from typedrag.lms.threads import thread_pool as in_threads
from typedrag.optimizers.sweep.config import SweepConfig
from typedrag.optimizers.sweep.run import SweepProgress, Swept, open_sweep, run_sweep
from typedrag.optimizers.sweep.study import ENDED

_LOOK_AGAIN = 1.0
"""Seconds between looks at the study for trials that have ended."""
_LIVES = 1000
"""Workers that one may replace: a trial takes long, and a study survives any of them."""


@dataclass(frozen=True)
class SweepWork:
    """The description of a sweep for its workers; see `experiments.executors.works.Work`."""

    config: SweepConfig
    out: Path

    @contextmanager
    def opened(self, tables: Callable[[str], Tables], worker: str) -> Iterator[SweepWork]:
        """See `Work`."""
        yield self

    def make_trials(self) -> str:
        """Make trials until there is a reason to stop, and return it; empty if nothing is left to do."""
        return run_sweep(self.config, self.out).stopped


def run_sweep_on_ray(
    config: SweepConfig, out: Path, executor: str, workers: int | None, *, watching: SweepProgress | None = None
) -> Swept:
    """Make trials of a sweep by the workers of a Ray cluster; see `run_sweep`.

    A worker that is lost is replaced, and its trial taken up. LM calls in flight are those of the configuration over
    all workers.

    Args:
        executor: See `ray_address`; not `local`.
        workers: As many as are wanted; by default one for each CPU of the cluster.

    Raises:
        InputError: Also if the cluster has several machines, and the study no storage that they share.
        Unavailable: If the cluster, an LM or the index cannot be used; finished work is kept.
    """
    watching = watching or SweepProgress()
    calls = config.calls_in_flight
    with open_sweep(config, out) as sweep, connected(executor, workers, threads=calls, calls=calls) as number:
        if config.storage is None and not is_one_machine():
            raise InputError(
                "the study is in a folder, and the Ray cluster has several machines",
                "Name a database that they share: --storage postgresql://…",
            )
        watching.begun()
        if sweep.parts.risk:
            watching.notice(sweep.parts.risk)
        before = {trial.number for trial in sweep.study.trials(ENDED)}

        def tell() -> None:
            for trial in sweep.study.trials(ENDED):
                if trial.number not in before:
                    before.add(trial.number)
                    watching.trial(trial)

        share = config.model_copy(update={"calls_in_flight": max(1, calls // number)})
        work = SweepWork(share, out.resolve())
        with in_threads(number) as threads, ray_workers(work, number, threads=number, calls=calls) as pool:
            working: list[Future[str]] = [threads.submit(pool.call, "make_trials", lives=_LIVES) for _ in range(number)]
            while wait(working, _LOOK_AGAIN).not_done:
                tell()
            tell()
        return Swept(sweep, next(filter(None, (ended.result() for ended in working)), ""))
