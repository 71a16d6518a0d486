"""`typedrag serve`: programs behind HTTP, for strangers' questions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.options import chosen
from typedrag.cli.served import listen, listening, served_programs

if TYPE_CHECKING:
    from typedrag.serving.programs import ProgramSpec


@click.command()
@served_programs
@listening(8000)
def command(
    sources: Sequence[ProgramSpec], limits: dict[str, Any], keys: Path | None, no_keys: bool, **where: Any
) -> None:
    """Serve programs over HTTP, until stopped.

    POST /v1/answer answers a question, with `Accept: text/event-stream` as events; GET /openapi.json
    describes all paths. Without --keys it listens on this machine only.
    """
    from typedrag.serving.server import open_app
    from typedrag.serving.settings import Settings, read_settings

    settings = read_settings({**limits, **chosen(keys=keys, no_keys=no_keys or None)}, Settings)
    names = ", ".join(source.name for source in sources)
    listen(names, partial(open_app, tuple(sources), settings), settings, **where)
