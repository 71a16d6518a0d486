"""Documents read in processes of their own, within limits: a small file may take more memory and time than there is.

This module is also the program of these processes. A line that such a process is sent names a file; a line of its
replies has the file's title and passages, both in JSON. A process that goes beyond a limit is ended, and another takes
its place.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import LifoQueue
from typing import Any, NamedTuple

from typedrag.core.errors import InputError, TypedRAGError
from typedrag.core.extras import MissingExtra
from typedrag.retrieval.index.documents import read_document
from typedrag.retrieval.index.splitting import LeftOut, split_blocks, split_text

logger = logging.getLogger(__name__)

SECONDS = "TYPEDRAG_DOCUMENT_SECONDS"
"""The environment variable of the seconds of a processor that reading a document may take."""
MEGABYTES = "TYPEDRAG_DOCUMENT_MB"
"""The environment variable of the memory that reading a document may take."""
DEFAULTS = {SECONDS: 120, MEGABYTES: 2_000}
SECONDS_A_MEGABYTE = 3  # seconds more for each megabyte of a file
LONGEST_TEXT = 300_000_000  # characters of a document's passages
_MOST_PROCESSES = 4
_PATIENCE = 5  # times these seconds that a document may take on a busy machine, or one that counts no processor time


class Passages(NamedTuple):
    """The title of a document, the texts of its passages, and the parts of it that are not indexed."""

    title: str
    texts: Sequence[str]
    left_out: Sequence[LeftOut]


def read_documents(paths: Sequence[Path]) -> Generator[Passages | TypedRAGError]:
    """Yield the passages of each document in order, or the reason why it cannot be read; a few are read ahead."""
    limits = {name: _limit(name) for name in DEFAULTS}
    count = min(len(paths), os.cpu_count() or 1, _MOST_PROCESSES)
    readers, free = [_Reader(limits) for _ in range(count)], LifoQueue[_Reader]()  # started when they are needed
    for reader in reversed(readers):
        free.put(reader)

    def read(path: Path) -> Passages | TypedRAGError:
        reader = free.get()
        try:
            return reader.read(path)
        finally:
            free.put(reader)

    pending = deque[Future[Passages | TypedRAGError]]()
    pool = ThreadPoolExecutor(max(1, count), "typedrag-documents")
    try:
        for path in paths:
            pending.append(pool.submit(read, path))
            if len(pending) > 2 * count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for reader in readers:
            reader.end()


class _Reader:
    """A process that reads one document at a time, started when it is needed."""

    def __init__(self, limits: dict[str, int]) -> None:
        self._limits = limits
        self._process: subprocess.Popen[str] | None = None
        self._ended = False

    def read(self, path: Path) -> Passages | TypedRAGError:
        seconds = self._limits[SECONDS] + SECONDS_A_MEGABYTE * _size(path) / 1e6
        late, reply = threading.Event(), ""
        process = self._start()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(_PATIENCE * seconds, give_up)
        timer.start()
        with suppress(OSError, ValueError):  # it has been ended
            assert process.stdin and process.stdout
            process.stdin.write(f"{json.dumps([str(path), seconds])}\n")
            process.stdin.flush()
            reply = process.stdout.readline()
        timer.cancel()
        if reply:
            values: dict[str, Any] = json.loads(reply)
            for warning in values["warnings"]:
                logger.warning("%s", warning)
            if package := values.get("package"):
                return MissingExtra(package, str(path))
            if problem := values.get("problem"):
                return InputError(problem, values["hint"])
            return Passages(values["title"], values["texts"], [LeftOut(*part) for part in values["left_out"]])
        process.kill()  # unless it has ended itself
        self._process, status = None, process.wait()
        if late.is_set() or -status == getattr(signal, "SIGXCPU", None):
            reason, name = f"it takes longer than {seconds:.0f} s", SECONDS
        else:
            reason, name = f"it takes more than {self._limits[MEGABYTES]:,} MB of memory, or ends its reader", MEGABYTES
        return InputError(f"{path} cannot be read: {reason}", f"Leave it out: --skip-bad, or raise {name}")

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None and not self._ended:
            one_thread = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS")}  # each takes memory
            limits = {name: str(value) for name, value in self._limits.items()}
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="ascii",
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **one_thread, **limits},
            )
        assert self._process
        return self._process

    def end(self) -> None:
        self._ended = True
        if self._process:
            self._process.kill()
            self._process.wait()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _limit(name: str) -> int:
    value = os.environ.get(name) or DEFAULTS[name]
    try:
        if (limit := int(value)) > 0:
            return limit
    except ValueError:
        pass
    raise InputError(f"{name} is '{value}', which is no limit", f"Write a whole number, such as {DEFAULTS[name]}")


def _read(path: Path) -> dict[str, Any]:
    """The reply to a request: the fields of `Passages`, or a problem and a hint."""
    try:
        title, content, left_out = read_document(path)
        texts = split_text(content) if isinstance(content, str) else list(split_blocks(content))
        if (length := sum(map(len, texts))) > LONGEST_TEXT:
            problem = f"its text has {length:,} characters, more than {LONGEST_TEXT:,}"
            raise InputError(f"{path} cannot be read: {problem}", "Split it, or leave it out: --skip-bad")
    except MissingExtra as error:
        return {"package": error.package}
    except TypedRAGError as error:
        if isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from None
        return {"problem": error.problem, "hint": error.hint}
    return Passages(title, texts, left_out)._asdict()


def main() -> None:
    """Reply to requests until the input ends; a request that takes more memory than is allowed ends the process."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("typedrag").addHandler(handler)
    for line in sys.stdin:
        path, seconds = json.loads(line)
        with suppress(ImportError, ValueError, OSError):  # there are no such limits on Windows
            import resource

            most = _limit(MEGABYTES) * 1_000_000
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 1, resource.RLIM_INFINITY))
        reply = _read(Path(path))
        replies.write(f"{json.dumps({**reply, 'warnings': warnings})}\n")
        replies.flush()
        warnings.clear()


if __name__ == "__main__":
    main()
