"""The options of commands that build datasets."""

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
    """The settings of a command that has LMs write a dataset.

    Attributes:
        out: The file to write.
        store: The store of LMs' replies; by default beside `out`.
        threads: LM calls at once.
        as_json: Whether to print the result as JSON.
        lm: The LM that writes, if there is one.
        api_base: The address of its server.
    """

    out: Path
    store: Path | None
    threads: int
    as_json: bool
    lm: str | None = None
    api_base: str | None = None

    def open_store(self) -> Judgments:
        """Open the store of LMs' replies.

        Raises:
            InputError: If `out` cannot be written, or the file is no store.
        """
        from typedrag.metrics import Judgments

        claim_file(self.out)
        return Judgments(self.store or self.out.with_name(f"{self.out.name}.sqlite"))

    def limit_calls(self) -> None:
        """Limit the LM calls of this process to `threads` at once."""
        from typedrag.lms.client import limit_calls_in_flight

        limit_calls_in_flight(self.threads)

    @contextmanager
    def using_lm(self) -> Iterator[None]:
        """Use the LM within the context, with at most `threads` calls at once."""
        from typedrag.lms.lm import open_lm, use_lm

        self.limit_calls()
        with use_lm(open_lm(self.lm, api_base=self.api_base, cache=False)):
            yield

    def finish(self, built: Built, counts: Mapping[str, int], of: str = "rows") -> None:
        """Write the rows, and print what was left out and why, and the file.

        Args:
            built: The result of a builder.
            counts: The number of each kind.
            of: The name of what is counted.

        Raises:
            InputError: If there are no rows.
        """
        from typedrag.builders import write_built

        for reason, count in built.left_out.most_common():
            say(f"left out: {count:,} ({reason})")
        if not built.rows:
            raise InputError("nothing was made", "Look at what was left out and why")
        write_built(built, self.out)
        say(f"{len(built.rows):,} rows")
        report = {of: counts, "left out": dict(built.left_out)}
        click.echo(json.dumps(report, indent=1) if self.as_json else str(self.out))


build_options = together(
    click.option("--out", type=click.Path(path_type=Path), required=True, help="The JSONL file to write."),
    click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON."),
)
"""The options of the output of builders."""

_OF_ALL = ("out", "store", "threads", "as_json")


def writing_lm(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options of the LM that writes, its speed and its store, passed as `writing`."""
    return _told(
        command,
        (*_OF_ALL, "lm", "api_base"),
        click.option("--lm", help="LM that writes: embedded[:NAME], vllm:MODEL or a DSPy name."),
        click.option("--api-base", help="Address of its OpenAI-compatible server."),
        timeout_option,
        *_HOW_FAST,
    )


def writing_lms(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options of speed and store, passed as `writing`, for commands with their own options of LMs."""
    return _told(command, _OF_ALL, *_HOW_FAST)


_HOW_FAST = (
    click.option("--threads", type=click.IntRange(1), default=16, show_default=True, help="LM calls at once."),
    click.option("--store", type=click.Path(path_type=Path), help="Store of LM replies; default: beside --out."),
)


def _told(command: Callable[..., Any], names: Sequence[str], *options: Callable[..., Any]) -> Callable[..., Any]:
    """The command with these options; those of these names are passed as its argument `writing`."""

    @wraps(command)
    def wrapped(**arguments: Any) -> Any:
        return command(writing=Writing(**{name: arguments.pop(name) for name in names}), **arguments)

    return together(*options)(wrapped)
