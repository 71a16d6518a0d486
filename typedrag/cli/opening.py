"""Output files and messages of commands."""

from __future__ import annotations

from pathlib import Path

import click

from typedrag.core.errors import InputError
from typedrag.core.redaction import without_keys


def claim(out: Path) -> None:
    """Lock the file that this command writes, until it ends."""
    context = click.get_current_context()
    claimed: set[Path] = context.meta.setdefault("typedrag.claimed", set())
    if out not in claimed:
        from typedrag.files.locks import lock_file  # `typedrag --help` need not wait for it

        context.with_resource(lock_file(out))
        claimed.add(out)


def claim_file(out: Path) -> Path:
    """Lock the file of `--out` and return it; checked first, before hours are spent."""
    if out.is_dir() or not out.resolve().parent.is_dir():
        raise InputError(f"--out {out} cannot be written", "Name a file in a folder that exists")
    claim(out)
    return out


def say(message: str) -> None:
    """Print a message to stderr, without keys."""
    click.echo(without_keys(message), err=True)
