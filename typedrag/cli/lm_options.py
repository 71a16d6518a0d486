"""Options of all commands that ask LMs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from typedrag.lms.patience import timeout_given


def _give(context: click.Context, _: click.Parameter, seconds: float | None) -> None:
    if seconds is not None:
        context.with_resource(_given(seconds))


@contextmanager
def _given(seconds: float) -> Iterator[None]:
    token = timeout_given.set(seconds)
    try:
        yield
    finally:
        timeout_given.reset(token)


timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    expose_value=False,
    callback=_give,
    help="That an LM may take to reply, before it is asked once more and given up. Default: 120; 300 for LMs that "
    "reason first, 600 for embedded ones.",
)
