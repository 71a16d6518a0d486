"""`typedrag keys`: who may ask a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from typedrag.serving.keys import KeyFile


@click.group(name="keys")
@click.option(
    "--keys",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path(click.get_app_dir("typedrag"), "keys.json"),
    show_default=True,
    help="The file that they are kept in, hashed.",
)
@click.pass_context
def command(context: click.Context, path: Path) -> None:
    """API keys of `typedrag serve --keys FILE`, which follows the changes of a file."""
    from typedrag.serving.keys import KeyFile

    context.obj = KeyFile(path)


@command.command()
@click.argument("name")
@click.option("--rate", type=click.IntRange(1), help="Requests a minute. Default: the server's limit `rate`.")
@click.pass_obj
def add(keys: KeyFile, name: str, rate: int | None) -> None:
    """Make a key for NAME and print it, this once."""
    from typedrag.cli.opening import say

    key = keys.add(name, rate)
    say(f"This is the key of '{name}', shown this once. It is let in by: typedrag serve --keys {keys.path}")
    click.echo(key)


@command.command("list")
@click.pass_obj
def list_keys(keys: KeyFile) -> None:
    """Whose keys there are, never the keys."""
    from typedrag.cli.opening import say
    from typedrag.cli.tables import draw_table

    kept = keys.read()
    if not kept:
        return say("there is no key: typedrag keys add NAME")
    rows = [[key.name, str(key.rate or "server's"), f"{key.created:%Y-%m-%d}"] for key in kept]
    return draw_table(["name", "requests a minute", "created"], rows, left=["created"])


@command.command()
@click.argument("name")
@click.pass_obj
def revoke(keys: KeyFile, name: str) -> None:
    """Take the key of NAME away; servers refuse it from their next request on."""
    from typedrag.cli.opening import say

    keys.revoke(name)
    say(f"the key of '{name}' is revoked")
