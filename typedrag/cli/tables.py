"""Tables on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def wide_console(width: int = 200, **settings: Any) -> Console:
    """A console of stdout, as wide as its terminal, or of this width if it is none."""
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
    """Print a table; all columns but the first are aligned to the right.

    Args:
        headings: The headings of the columns.
        rows: Rows, with a text for each column.
        title: The title of the table.
        left: The headings of other columns to align to the left.
        console: The console to print on; by default `wide_console()`.
    """
    table = Table(box=box.SIMPLE_HEAD, title=escape(title) or None, title_justify="left")
    for n, heading in enumerate(headings):
        table.add_column(escape(heading), justify="right" if n and heading not in left else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    (console or wide_console()).print(table)
