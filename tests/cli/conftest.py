import pytest

from tests.commands import invoke


@pytest.fixture
def run(server, tmp_path, monkeypatch):
    """Runs a command in a folder of its own, where the LM of a server answers."""
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    monkeypatch.chdir(tmp_path)
    return invoke
