"""`typedrag serve`: programs behind HTTP, for strangers' questions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.opening import say
from typedrag.cli.options import chosen
from typedrag.cli.served import served_programs

if TYPE_CHECKING:
    from typedrag.serving.served import ServedSource

LOOPBACK = "127.0.0.1"


@click.command()
@served_programs
@click.option(
    "--keys",
    type=click.Path(path_type=Path),
    help="File of API keys, see typedrag keys; its changes are followed.",
)
@click.option("--no-keys", is_flag=True, help="Let anyone who reaches the server ask.")
@click.option("--host", default=LOOPBACK, show_default=True, help="Address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 for any free one."
)
@click.option(
    "--replicas",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of processes; the limits hold for each.",
)
@click.pass_context
def command(
    ctx: click.Context,
    sources: Sequence[ServedSource],
    limits: dict[str, Any],
    keys: Path | None,
    no_keys: bool,
    host: str,
    port: int,
    replicas: int,
) -> None:
    """Serve programs over HTTP, until stopped.

    POST /v1/answer answers a question, with `Accept: text/event-stream` as events; GET /openapi.json
    describes all paths. Without --keys it listens on this machine only.
    """
    from typedrag.serving.run import serve
    from typedrag.serving.settings import read_settings

    settings = read_settings({**limits, **chosen(keys=keys, no_keys=no_keys or None)})
    if replicas == 1:
        serve(sources, settings, host=host, port=port, say=say)
        return
    from typedrag.cli.main import log_to_stderr
    from typedrag.serving.replicas import serve_replicas

    prepare = partial(log_to_stderr, verbose=bool(ctx.find_root().params.get("verbose")))
    serve_replicas(sources, settings, replicas, host=host, port=port, say=say, prepare=prepare)
