"""Tables on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def wide_console(width: int = 200, **settings: Any) -> Console:
    """Stdout: as wide as its terminal, or as this where it is none."""
    console = Console(highlight=False, **settings)
    if not console.is_terminal:
        console.width = width
    return console


def draw_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    left: Sequence[str] = (),
    console: Console | None = None,
) -> None:
    """Print rows of texts below headings, numbers to the right.

    Args:
        headings: Of the columns.
        rows: A text for each column.
        title: Above them.
        left: The headings of columns of words, besides the first.
        console: Where to; by default `wide_console()`.
    """
    table = Table(box=box.SIMPLE_HEAD, title=escape(title) or None, title_justify="left")
    for n, heading in enumerate(headings):
        table.add_column(escape(heading), justify="right" if n and heading not in left else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    (console or wide_console()).print(table)
