"""The process that owns a vLLM server: `keeper.py USERS STATE COMMAND…`.

Each user of the server holds a shared lock on the file USERS; the system releases the lock of a user that is killed.
When the keeper gets the lock for itself, nobody uses the server any more, and it is stopped. The file is run as it lies
here, by itself, so that the keeper takes no more than Python.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

_LOOK_EVERY = 0.5
_SECONDS_TO_STOP = 30.0
_PR_SET_PDEATHSIG = 1


def keep(users: Path, state: Path, command: list[str]) -> int:
    """Run a server until nobody uses it or it ends, and return its exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with users.open("rb") as file:
        server = subprocess.Popen(command, start_new_session=True, preexec_fn=_end_with_keeper)
        try:
            while server.poll() is None and not _is_unused(file):
                time.sleep(_LOOK_EVERY)
        finally:
            state.unlink(missing_ok=True)
            _stop(server)
    return server.returncode


def _is_unused(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True  # the lock is kept: who comes now waits until the server is gone


def _stop(server: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        server.terminate()
    with suppress(subprocess.TimeoutExpired):
        server.wait(_SECONDS_TO_STOP)
    with suppress(ProcessLookupError):  # what is left of its processes
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def _end_with_keeper() -> None:
    """End the server even if the keeper is killed, where the system can (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
