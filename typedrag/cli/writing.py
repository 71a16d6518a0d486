"""What commands that build datasets have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.opening import claim_file, say
from typedrag.cli.options import timeout_option, together
from typedrag.errors import InputError

if TYPE_CHECKING:
    from typedrag.builders import Built
    from typedrag.metrics import Judgments


@dataclass(frozen=True)
class Writing:
    """What a command that has LMs write was told of them, and where it goes.

    Attributes:
        out: The file that is built.
        store: Of what LMs wrote; by default beside `out`.
        threads: LM calls at once.
        as_json: Whether what came of it is told as JSON.
        lm: Who writes, where that is one.
        api_base: Its server.
    """

    out: Path
    store: Path | None
    threads: int
    as_json: bool
    lm: str | None = None
    api_base: str | None = None

    def open_store(self) -> Judgments:
        """The store of what LMs wrote.

        Raises:
            InputError: If the file that is built cannot be written, or the store is none.
        """
        from typedrag.metrics import Judgments

        claim_file(self.out)
        return Judgments(self.store or self.out.with_name(f"{self.out.name}.sqlite"))

    def limit_calls(self) -> None:
        """Let this process make no more LM calls at once than was said."""
        from typedrag.lms.lm import limit_calls_in_flight

        limit_calls_in_flight(self.threads)

    @contextmanager
    def using_lm(self) -> Iterator[None]:
        """Ask within who writes, so many calls at once as was said."""
        from typedrag.lms.lm import open_lm, use_lm

        self.limit_calls()
        with use_lm(open_lm(self.lm, api_base=self.api_base, cache=False)):
            yield

    def finish(self, built: Built, counts: Mapping[str, int], of: str = "rows") -> None:
        """Write what was built, and say what was left out and why, and where it is.

        Args:
            built: By a builder.
            counts: How many of each kind there are.
            of: Of what.

        Raises:
            InputError: If nothing is left.
        """
        from typedrag.builders import write_built

        for reason, count in built.left_out.most_common():
            say(f"left out: {count:,} ({reason})")
        if not built.rows:
            raise InputError("nothing was made", "Look at what was left out and why")
        write_built(built, self.out)
        say(f"{len(built.rows):,} rows")
        made = {of: counts, "left out": dict(built.left_out)}
        click.echo(json.dumps(made, indent=1) if self.as_json else str(self.out))


build_options = together(
    click.option("--out", type=click.Path(path_type=Path), required=True, help="The JSONL file to write."),
    click.option("--json", "as_json", is_flag=True, help="What was made and left out, as JSON."),
)
"""Where a dataset is built, and how it is told."""

_OF_ALL = ("out", "store", "threads", "as_json")


def writing_lm(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options that say which LM writes, how fast, and where that is kept, as the `writing`."""
    return _told(
        command,
        (*_OF_ALL, "lm", "api_base"),
        click.option("--lm", help="Who writes: embedded[:NAME], vllm:MODEL or a DSPy name."),
        click.option("--api-base", help="Address of its OpenAI-compatible server."),
        timeout_option,
        *_HOW_FAST,
    )


def writing_lms(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options that say how fast LMs write, whichever they are, and where that is kept: their specs are
    the command's own."""
    return _told(command, _OF_ALL, *_HOW_FAST)


_HOW_FAST = (
    click.option("--threads", type=click.IntRange(1), default=16, show_default=True, help="LM calls at once."),
    click.option("--store", type=click.Path(path_type=Path), help="What the LM wrote; default: beside --out."),
)


def _told(command: Callable[..., Any], names: Sequence[str], *options: Callable[..., Any]) -> Callable[..., Any]:
    """The command with these options, told those of these names as its argument `writing`."""

    @wraps(command)
    def told(**given: Any) -> Any:
        return command(writing=Writing(**{name: given.pop(name) for name in names}), **given)

    return together(*options)(told)
