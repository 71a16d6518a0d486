import subprocess
import sys

import pytest

from tests.commands import invoke


@pytest.fixture
def run(server, tmp_path, monkeypatch):
    """Runs a command in a folder of its own, where the LM of a server answers."""
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    monkeypatch.chdir(tmp_path)
    return invoke


@pytest.fixture
def run_command(tmp_path):
    """Runs a command in a process of its own."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "typedrag", *words], capture_output=True, text=True, cwd=tmp_path)

    return run
