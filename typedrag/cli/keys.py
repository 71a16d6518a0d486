"""`typedrag keys`: the API keys of a server."""

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
    help="The key file, with hashes of the keys.",
)
@click.pass_context
def command(context: click.Context, path: Path) -> None:
    """Manage the API keys of `typedrag serve --keys FILE`; a running server follows the changes."""
    from typedrag.serving.keys import KeyFile

    context.obj = KeyFile(path)


@command.command()
@click.argument("name")
@click.option("--rate", type=click.IntRange(1), help="Requests per minute. Default: the server's limit `rate`.")
@click.pass_obj
def add(keys: KeyFile, name: str, rate: int | None) -> None:
    """Make a key for NAME and print it; it cannot be shown again."""
    from typedrag.cli.opening import say

    key = keys.add(name, rate)
    say(f"This is the key of '{name}', shown this once. It is let in by: typedrag serve --keys {keys.path}")
    click.echo(key)


@command.command("list")
@click.pass_obj
def list_keys(keys: KeyFile) -> None:
    """List the names of the keys, never the keys themselves."""
    from typedrag.cli.opening import say
    from typedrag.cli.tables import draw_table

    entries = keys.read()
    if not entries:
        return say("there is no key: typedrag keys add NAME")
    rows = [[key.name, str(key.rate or "server's"), f"{key.created:%Y-%m-%d}"] for key in entries]
    return draw_table(["name", "requests a minute", "created"], rows, left=["created"])


@command.command()
@click.argument("name")
@click.pass_obj
def revoke(keys: KeyFile, name: str) -> None:
    """Revoke the key of NAME; servers refuse it from the next request on."""
    from typedrag.cli.opening import say

    keys.revoke(name)
    say(f"the key of '{name}' is revoked")
