"""Workers of a sweep as processes of their own, which can be killed; they are quick to start."""

import json
import multiprocessing
import os
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import dspy

from tests.experiments import tiny  # noqa: F401  (makes its metrics known)
from typedrag.optimizers.sweep import SweepConfig, SweepProgress, run_sweep

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__])
"""What the tests import is imported once for all workers."""


def start_worker(values: dict[str, Any], out: Path, log: Path) -> BaseProcess:
    """A process that makes trials, and writes a line into the log for each as it ends."""
    process = CONTEXT.Process(target=_work, args=(json.dumps(values, default=str), str(out), str(log)))
    process.start()
    return process


def kill_after(process: BaseProcess, server: Any, calls: int) -> None:
    """Kill a worker once so many calls have been begun at the server; it may be done before."""
    deadline = time.monotonic() + 60
    while len(server.calls) < calls and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.001)
    process.kill()
    process.join()
    time.sleep(2 * server.seconds)  # what was sent before still arrives


def logged(log: Path) -> list[dict[str, Any]]:
    """The trials that workers have ended."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _work(values: str, out: str, log: str) -> None:
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)

    def on_trial(trial: Any) -> None:
        line = {"worker": os.getpid(), "trial": trial.number, "point": trial.params, "values": trial.values}
        with Path(log).open("a") as lines:
            lines.write(json.dumps(line) + "\n")

    config = SweepConfig.model_validate(json.loads(values))
    run_sweep(config, Path(out), watching=SweepProgress(trial=on_trial))
