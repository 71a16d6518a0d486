"""A real Milvus for tests: the engine that milvus-lite 2 brings, as a server."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest


class MilvusServer:
    """A server over a file, which can be killed and started again.

    Args:
        file: Where it keeps its data.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://localhost:{self.port}"
        self.start()

    def start(self) -> None:
        libraries = _libraries()
        self.process = subprocess.Popen(
            [libraries / "milvus", self.file, f"localhost:{self.port}", "FATAL"],
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("localhost", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None, "Milvus ended"
                assert time.monotonic() < deadline, "Milvus does not listen"
                time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def milvus_server(folder: Path) -> Iterator[MilvusServer]:
    """An empty server."""
    pytest.importorskip("pymilvus", reason="needs Milvus's client: pip install 'typedrag[milvus]'")
    server = MilvusServer(folder / "milvus.db")
    try:
        yield server
    finally:
        server.kill()


def _libraries() -> Path:
    try:
        lite = version("milvus-lite")
    except PackageNotFoundError:
        pytest.skip("needs Milvus's engine: pip install 'milvus-lite<3'")
    if not lite.startswith("2."):
        pytest.skip(f"milvus-lite {lite} is not Milvus's own engine: pip install 'milvus-lite<3'")
    spec = find_spec("milvus_lite")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "lib"
