"""Progress on stderr: a bar at a terminal, otherwise a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from typedrag.cli.opening import say
from typedrag.core.errors import LMUnavailable, RetrievalError

if TYPE_CHECKING:
    from typedrag.lms.cost import Spending
    from typedrag.runs import Progress as RunProgress

_SECONDS_BETWEEN_LINES = 60
_ESTIMATE_SECONDS = 600.0
"""The last seconds that the time left is estimated from: a question may take minutes."""


class OnProgress(Protocol):
    """A function of the number done so far, and perhaps a note."""

    def __call__(self, done: float, note: str = "") -> None:
        """Show the progress."""


@contextmanager
def counting(unit: str, total: int | None = None) -> Iterator[OnProgress]:
    """Show the number done, the rate, and the time left if the total is known.

    Args:
        unit: The name of what is counted.
        total: The total; None if unknown.

    Yields:
        A function to call with the number done so far. The number at its first call was done
        before, and is left out of the estimate of the time left.
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

        last_line = time.monotonic()

        def on_progress(done: float, note: str = "") -> None:
            nonlocal last_line
            progress.update(task, completed=done, note=note)
            if hidden and time.monotonic() - last_line > _SECONDS_BETWEEN_LINES:
                last_line = time.monotonic()
                of_total = f" of {total:,}" if total else ""
                say(f"{unit}: {done:,.0f}{of_total}{note and '; '}{note}")

        yield on_progress


class RunsProgress:
    """Shows the progress of runs, or of stages of work, one after the other.

    Args:
        resumable: Tells whether anything is kept, after an error of LM or index or an interruption.
        again: The hint on how to continue.
        label: What is shown of a run, with {} for its name.
    """

    def __init__(
        self,
        resumable: Callable[[], bool] = lambda: False,
        again: str = "continue with --resume",
        *,
        label: str = "questions: {}",
    ) -> None:
        self._resumable, self._again, self._label = resumable, again, label
        self._stack = ExitStack()
        self._run: str | None = None
        self._bar: OnProgress | None = None

    def show(self, progress: RunProgress) -> None:
        """Show the progress of a run."""
        if self._bar is None or self._run != progress.run:
            self.end()
            self._run = progress.run
            self._bar = self._stack.enter_context(counting(self._label.format(progress.run), total=progress.planned))
        self._bar(progress.done, in_words(progress.spent) + (f", {progress.failed} failed" if progress.failed else ""))

    def end(self) -> None:
        """Leave the bar of a run as it is."""
        self._stack.close()
        self._run = self._bar = None

    def __enter__(self) -> RunsProgress:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.end()
        if isinstance(error, LMUnavailable | RetrievalError | KeyboardInterrupt) and self._resumable():
            say(f"what was done is kept: {self._again}")


def in_words(spent: Spending) -> str:
    """LM calls, tokens and their price where it is known."""

    from typedrag.lms.cost import format_dollars

    cost = "" if spent.cost is None else f", {format_dollars(spent.cost)}"
    return f"{spent.usage.lm_calls:,} LM calls, {spent.tokens:,} tokens{spent.usage.without()}{cost}"
