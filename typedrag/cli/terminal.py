"""The terminal, as commands and scripts use it: messages, tables, JSON, progress, errors with their exit statuses."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from typedrag.core.errors import InputError, LMUnavailable, RetrievalError, TypedRAGError, Unavailable, path_error
from typedrag.core.extras import name_missing_extras
from typedrag.core.redaction import without_keys

if TYPE_CHECKING:
    from rich.console import Console

    from typedrag.lms.cost import Spending
    from typedrag.runs import Progress as RunProgress

_SECONDS_BETWEEN_LINES = 60
_ESTIMATE_SECONDS = 600.0  # the last ones that the time left is estimated from: a question may take minutes


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    UNAVAILABLE = 3
    INTERRUPTED = 130
    TERMINATED = 143


@contextmanager
def report_errors() -> Iterator[None]:
    """Turn typedrag's errors, and those of files that cannot be read, into a message and an exit status."""
    try:
        with name_missing_extras():
            yield
    except TypedRAGError as error:
        echo(f"Error: {error}", err=True)
        if isinstance(error, InputError):
            sys.exit(ExitCode.BAD_INPUT)
        sys.exit(ExitCode.UNAVAILABLE if isinstance(error, Unavailable) else ExitCode.FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            with suppress(OSError):  # flushing stdout at exit would fail again
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        with report_errors():
            raise path_error(error.filename or "what was to be written", error) from error


def run(main: Callable[[], None]) -> None:
    """Run a script with the error messages and exit statuses of commands."""
    with report_errors():
        main()


class _Lines(logging.Formatter):
    """Log lines without keys, since those of libraries contain addresses; typedrag's warnings read like its errors."""

    def format(self, record: logging.LogRecord) -> str:
        line = visible(without_keys(super().format(record)))
        own = record.name.startswith("typedrag.") and record.levelno == logging.WARNING
        return f"Warning: {line.removeprefix(f'{record.name}: ')}" if own else line


def log_to_stderr(*, verbose: bool = False, quiet: bool = False) -> None:
    """Make this process log to stderr, without keys; quiet, only errors, and no messages or progress."""
    lines = logging.StreamHandler()
    lines.setFormatter(_Lines("%(name)s: %(message)s"))
    level = logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[lines])
    logging.getLogger("typedrag").setLevel(level)
    # what it says while minutes pass
    logging.getLogger("typedrag.lms.vllm").setLevel(logging.ERROR if quiet else logging.INFO)
    if not verbose:
        # it warns of each reply that was cut off, as answers do; the level of `dspy` itself is set by its import
        for noisy in ("httpx", "dspy.clients.lm", "huggingface_hub", "sentence_transformers"):
            logging.getLogger(noisy).setLevel(logging.ERROR)


def is_quiet() -> bool:
    return logging.getLogger("typedrag").level >= logging.ERROR


_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that steer a terminal, or show what follows in another order; ends of lines and tabs are none of these."""


def visible(text: str) -> str:
    """The text with each control character written as JSON would escape it, so that it is shown and not obeyed.

    Example:
        >>> visible("\\x1b[31mred\\n")
        '\\\\u001b[31mred\\n'
    """
    return _CONTROL.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def echo(text: str, *, err: bool = False, nl: bool = True, bold: bool | None = None) -> None:
    """Print a text to stdout, or to stderr; whoever wrote it, it does not steer the terminal."""
    click.secho(visible(text), err=err, nl=nl, bold=bold)


def say(message: str) -> None:
    """Print a message to stderr, without keys."""
    if not is_quiet():
        echo(without_keys(message), err=True)


def print_json(*objects: Any, **settings: Any) -> None:
    for each in objects:
        echo(json.dumps(each, ensure_ascii=False, **settings))


def claim_file(out: Path) -> Path:
    """Lock the file of `--out` until the command ends, and return it; checked first, before hours are spent."""
    if out.is_dir() or not out.resolve().parent.is_dir():
        raise InputError(f"--out {out} cannot be written", "Name a file in a folder that exists")
    context = click.get_current_context()
    claimed: set[Path] = context.meta.setdefault("typedrag.claimed", set())
    if out not in claimed:
        from typedrag.files.locks import lock_file  # `typedrag --help` need not wait for it

        context.with_resource(lock_file(out))
        claimed.add(out)
    return out


def make_console(**settings: Any) -> Console:
    """A console of rich, whose own codes reach the terminal, and no others."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=visible(segment.text))

    return SafeConsole(**settings)


def wide_console(width: int = 200, **settings: Any) -> Console:
    """A console of stdout, as wide as its terminal, or of this width if it is none."""
    console = make_console(highlight=False, **settings)
    if not console.is_terminal:
        console.width = width
    return console


def draw_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    left: Sequence[str] = (),
    gives_way: Sequence[str] | None = None,
    console: Console | None = None,
) -> None:
    """Print a table; all columns are aligned to the right, but the first and those whose headings are `left`.

    Where it is wider than the terminal, cells are folded, or else columns of the headings that give way are left out,
    in this order, and named below it. If it still is too wide, it is printed in parts, each with the first column.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    console, cells = console or wide_console(), [*rows]

    def table_of(columns: Sequence[int]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, title=escape(title) or None, title_justify="left")
        for n in columns:
            to_left = not n or headings[n] in left
            table.add_column(escape(headings[n]), justify="left" if to_left else "right", overflow="fold")
        for row in cells:
            table.add_row(*(escape(row[n]) for n in columns))
        return table

    def fits(columns: Sequence[int]) -> bool:
        unlimited = console.options.update(width=100_000)
        return console.measure(table_of(columns), options=unlimited).maximum <= console.width

    columns, dropped = [*range(len(headings))], list[str]()
    for heading in gives_way or ():
        if not fits(columns):
            columns.remove(headings.index(heading))
            dropped.append(heading)
    while columns:
        part = columns
        while len(part) > 2 and gives_way is not None and not fits(part):
            part = part[:-1]
        console.print(table_of(part))
        columns = [0, *rest] if (rest := columns[len(part) :]) else []
    if dropped:
        console.print(f"no room for: {', '.join(dropped)}")


class OnProgress(Protocol):
    def __call__(self, done: float, note: str = "") -> None:
        """Show the number done so far, and perhaps a note."""


@contextmanager
def counting(unit: str, total: int | None = None) -> Iterator[OnProgress]:
    """Show the number done, the rate, and the time left if the total is known: a bar, or a line now and then.

    The number at the first call of what this yields was done before, and is left out of the estimate of the time left.
    """
    from rich import progress as bars

    text, elapsed = bars.TextColumn, bars.TimeElapsedColumn()
    columns: list[bars.ProgressColumn] = [bars.BarColumn(), bars.MofNCompleteColumn(), text(unit), elapsed]
    columns += [bars.TimeRemainingColumn(), text("{task.fields[note]}", style="dim")]
    if not total:
        columns = [text("{task.completed:,.0f} " + unit), elapsed, text("{task.speed:,.0f} a second")]
    console = make_console(stderr=True)
    hidden = not console.is_terminal or is_quiet()
    with bars.Progress(*columns, console=console, disable=hidden, speed_estimate_period=_ESTIMATE_SECONDS) as progress:
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
        if self._bar is None or self._run != progress.run:
            self.end()
            self._run = progress.run
            self._bar = self._stack.enter_context(counting(self._label.format(progress.run), total=progress.planned))
        self._bar(progress.done, in_words(progress.spent) + (f", {progress.failed} failed" if progress.failed else ""))

    def end(self) -> None:
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
