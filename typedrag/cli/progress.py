"""Progress on stderr, so that stdout holds nothing but data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counting(unit: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show how many are done, how many a second, and the time left where the total is known.

    Args:
        unit: What is counted.
        total: None if it is not known.

    Yields:
        A function to call with the number done so far.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        [BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeElapsedColumn(), TimeRemainingColumn()]
        if total
        else [
            TextColumn("{task.completed:,.0f} " + unit),
            TimeElapsedColumn(),
            TextColumn("{task.speed:,.0f} a second"),
        ]
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)
