"""Scripts and benchmarks end as commands do."""

from __future__ import annotations

import sys
from collections.abc import Callable

from typedrag.cli.main import say_error
from typedrag.errors import TypedRAGError


def run(main: Callable[[], None]) -> None:
    """Run a script: what typedrag refuses or cannot do is a line, and the exit status that a command would have."""
    try:
        main()
    except TypedRAGError as error:
        sys.exit(say_error(error))
