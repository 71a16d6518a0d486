"""A Ray of several processes on this machine."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'typedrag[ray]'")
_RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]


class Cluster(NamedTuple):
    """A cluster, by the name of its executor and the process that started it."""

    executor: str
    process: psutil.Process

    def workers(self) -> list[psutil.Process]:
        """The processes of its workers."""
        return [p for p in self.process.children(recursive=True) if _name_of(p).startswith("ray::Worker")]


def _name_of(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):  # it has just ended
        return process.name()
    return ""


@contextmanager
def ray_cluster(cpus: int) -> Iterator[Cluster]:
    """A cluster that believes to have so many CPUs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--num-cpus", str(cpus), "--include-dashboard=false", "--disable-usage-stats"]
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_AUTH_MODE", "disabled")  # no token is written to the user's home
    patch.setenv("RAY_worker_niceness", "0")  # or they starve where other tests run
    patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    # sockets lie in the folder, and their names may have 107 characters
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ray-", ignore_cleanup_errors=True) as folder:
        start = [*_RAY, "start", "--head", "--block", *options, "--temp-dir", folder]
        process = subprocess.Popen(start, stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: _listens(port))
            yield Cluster(f"ray:127.0.0.1:{port}", psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait(60)
            patch.undo()


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
