"""Names of processes, by which others on the same machine can tell whether they still run."""

from __future__ import annotations

import os
import platform
import re
import uuid
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

_FORM = re.compile(r"(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{12}")


def process_name() -> str:
    """A new name for this process, of 32 characters at most."""
    return f"{_machine()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


def has_ended(name: str) -> bool:
    """True if a process of this machine was called so and runs no more; False where that is not known.

    Example:
        >>> has_ended(process_name()), has_ended("a process of another machine")
        (False, False)
    """
    match = _FORM.fullmatch(name)
    if match is None or match["machine"] != _machine() or os.name != "posix":  # elsewhere os.kill ends a process
        return False
    try:
        os.kill(int(match["pid"]), 0)
    except ProcessLookupError:
        return True
    except OSError:  # it runs, and belongs to someone else
        return False
    return False


@cache
def _machine() -> str:
    """A digest of what process ids are counted in: the machine since its start, and the container on Linux."""
    marks = [platform.node()]
    with suppress(OSError):
        marks += [Path("/proc/sys/kernel/random/boot_id").read_text(), str(Path("/proc/self/ns/pid").readlink())]
    return sha256("\n".join(marks).encode()).hexdigest()[:8]
