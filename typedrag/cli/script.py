"""Error handling of scripts and benchmarks."""

from __future__ import annotations

from collections.abc import Callable

from typedrag.cli.main import errors_said


def run(main: Callable[[], None]) -> None:
    """Run a script with the error messages and exit statuses of commands."""
    with errors_said():
        main()
