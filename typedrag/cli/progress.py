"""Progress on stderr, so that stdout holds nothing but data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_ESTIMATE_SECONDS = 600.0
"""The time left is estimated from the last of these: a question may take minutes."""


class OnProgress(Protocol):
    """Takes the number done so far, and perhaps a word on it."""

    def __call__(self, done: float, note: str = "") -> None:
        """Show it."""


@contextmanager
def counting(unit: str, total: int | None = None) -> Iterator[OnProgress]:
    """Show how many are done, how many a second, and the time left where the total is known.

    Args:
        unit: What is counted.
        total: None if it is not known.

    Yields:
        A function to call with the number done so far. What is done at its first call was done
        before, and says nothing of the time that the rest will take.
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
        [
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
        ]
        if total
        else [
            TextColumn("{task.completed:,.0f} " + unit),
            TimeElapsedColumn(),
            TextColumn("{task.speed:,.0f} a second"),
        ]
    )
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Progress(*columns, console=console, disable=hidden, speed_estimate_period=_ESTIMATE_SECONDS) as progress:
        task = progress.add_task("", total=total, note="")

        def on_progress(done: float, note: str = "") -> None:
            progress.update(task, completed=done, note=note)

        yield on_progress
