"""Scripts and benchmarks end as commands do."""

from __future__ import annotations

from collections.abc import Callable

from typedrag.cli.main import errors_said


def run(main: Callable[[], None]) -> None:
    """Run a script: what a command would say in a line and end on with an exit status, it does too."""
    with errors_said():
        main()
