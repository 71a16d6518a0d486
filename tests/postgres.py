"""A real PostgreSQL server for tests, from Debian's packages."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of an empty database."""
    initdb = _program("initdb")
    if initdb is None:
        pytest.skip("needs PostgreSQL's initdb: apt-get install postgresql")
    user = _user()
    with tempfile.TemporaryDirectory() as folder:
        if user:
            shutil.chown(folder, user)
        data, port = Path(folder, "data"), _free_port()
        made = {"user": user, "cwd": "/", "check": True, "capture_output": True}
        subprocess.run([initdb, "-D", data, "-U", "tester", "-A", "trust", "--no-sync"], **made)
        server = subprocess.Popen(
            [initdb.with_name("postgres"), "-D", data, "-p", str(port), "-k", folder, "-c", "fsync=off",
             "-c", "listen_addresses=127.0.0.1"],
            user=user, cwd="/", stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            url = f"postgresql://tester@127.0.0.1:{port}/postgres"
            _wait_for(url)
            yield url
        finally:
            server.terminate()
            server.wait()


def _program(name: str) -> Path | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = installed[-1] if installed else shutil.which(name)
    return Path(found).resolve() if found else None


def _user() -> str | None:
    """Whom it runs as; it refuses to run as root."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_for(url: str) -> None:
    import time

    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
