import pytest
from click.testing import CliRunner

from typedrag.cli.main import cli


@pytest.fixture
def run(server, tmp_path, monkeypatch):
    """Runs a command in a folder of its own, where the LM of a server answers."""
    monkeypatch.setenv("TYPEDRAG_API_BASE", server.api_base)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli, [str(argument) for argument in arguments])
