"""The command line, in this process."""

from typing import Any

from click.testing import CliRunner, Result

from typedrag.cli.main import cli


def invoke(*words: Any, **more: Any) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], **more)
