"""What commands that build datasets have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.lm_options import timeout_option
from typedrag.cli.opening import claim, say
from typedrag.errors import InputError

if TYPE_CHECKING:
    from typedrag.builders import Built
    from typedrag.metrics import Judgments


def writing_lm(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options that say which LM writes, how fast, and where that is kept."""
    command = writing(command)
    for option in (
        timeout_option,
        click.option("--api-base", help="Address of its OpenAI-compatible server."),
        click.option("--lm", help="Who writes: embedded[:NAME], vllm:MODEL or a DSPy name."),
    ):
        command = option(command)
    return command


def writing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options that say how fast LMs write, whichever they are, and where that is kept."""
    for option in (
        click.option("--store", type=click.Path(path_type=Path), help="What the LM wrote; default: beside --out."),
        click.option("--threads", type=click.IntRange(1), default=16, show_default=True, help="LM calls at once."),
    ):
        command = option(command)
    return command


def open_store(store: Path | None, out: Path) -> Judgments:
    """The store of what an LM wrote, by default beside the file that is built.

    Raises:
        InputError: If the file cannot be written, or the store is none.
    """
    from typedrag.metrics import Judgments

    if out.is_dir() or not out.resolve().parent.is_dir():
        raise InputError(f"--out {out} cannot be written", "Name a file in a folder that exists")
    claim(out)
    return Judgments(store or out.with_name(f"{out.name}.sqlite"))


def finish(built: Built, out: Path) -> None:
    """Write what was built, and say what was left out and why.

    Raises:
        InputError: If nothing is left.
    """
    from typedrag.builders import write_built

    for reason, count in built.left_out.most_common():
        say(f"left out: {count:,} ({reason})")
    if not built.rows:
        raise InputError("nothing was made", "Look at what was left out and why")
    write_built(built, out)
    say(f"{len(built.rows):,} rows")
