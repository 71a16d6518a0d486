"""`typedrag serve` as a process of its own."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.lm_server import MODEL, LMServer


class Process:
    """A server that was started; `said` are the lines of stderr so far."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.said: list[str] = []
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | environment, start_new_session=True
        )
        self._changed = threading.Condition()
        self._ended = False
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        line = self.wait_for("typedrag serves")
        self.client = httpx.Client(base_url=line.split()[-1], timeout=60)

    def wait_for(self, words: str, times: int = 1) -> str:
        """The line of stderr that holds some words for the so-manieth time."""

        def found() -> list[str]:
            return [line for line in self.said if words in line]

        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(found()) >= times, 100)
            assert len(found()) >= times, "\n".join(self.said)
            return found()[times - 1]

    def ask(self, question: str) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/answer", json={"question": question}, timeout=60)

    @property
    def url(self) -> str:
        return str(self.client.base_url).rstrip("/")

    def wait(self) -> int:
        """The exit code."""
        code = self.process.wait(60)
        self._reading.join(60)
        return code

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            with self._changed:
                self.said.append(line.rstrip())
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def command(lm: LMServer, *arguments: str) -> list[str]:
    lm_arguments = ["--lm", f"vllm:{MODEL}", "--api-base", lm.api_base, "--port", "0", "--rate", "1000000"]
    return [sys.executable, "-m", "typedrag", "serve", *lm_arguments, *arguments]


@contextmanager
def process(
    lm: LMServer, cache: Path, *arguments: str, before: Sequence[str] = (), **environment: str
) -> Iterator[Process]:
    """A server that runs within, perhaps by another command, and keeps its files in a folder."""
    started = Process([*before, *command(lm, *arguments)], {"TYPEDRAG_CACHE": str(cache), **environment})
    try:
        yield started
    finally:
        started.client.close()
        started.process.kill()
        started.process.wait()
