"""Stores of MLflow, whose tables, which take seconds to make, are made once; and its server."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import httpx


def new_store(folder: Path) -> str:
    """The URI of an empty store in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mlflow.db").write_bytes(_empty())
    return f"sqlite:///{folder / 'mlflow.db'}"


@cache
def _empty() -> bytes:
    import mlflow

    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        mlflow.search_experiments()
        mlflow.set_tracking_uri(before)
        return Path(folder, "mlflow.db").read_bytes()


@contextmanager
def mlflow_server(store: str) -> Iterator[str]:
    """The address of MLflow's server of a store, which runs within."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["server", "--backend-store-uri", store, "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # seven processes that do nothing here
    with subprocess.Popen(
        [sys.executable, "-m", "mlflow", *words], env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    ) as server:
        try:
            uri, until = f"http://127.0.0.1:{port}", time.monotonic() + 100
            while True:
                try:
                    httpx.get(f"{uri}/health").raise_for_status()
                    break
                except httpx.HTTPError:
                    assert time.monotonic() < until
                    time.sleep(0.2)
            yield uri
        finally:
            os.killpg(server.pid, signal.SIGTERM)
