"""`typedrag mcp`: programs as tools for an agent on this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.opening import say
from typedrag.cli.served import served_programs

if TYPE_CHECKING:
    from typedrag.serving.programs import ProgramSpec


@click.command()
@served_programs
def command(
    sources: Sequence[ProgramSpec],
    limits: dict[str, Any],
) -> None:
    """Answer an agent over the Model Context Protocol, until it disconnects.

    The agent starts this command itself and talks to it over stdin and stdout. For agents over HTTP, use
    `typedrag serve`, at /mcp.
    """
    from typedrag.serving.mcp import over_stdio
    from typedrag.serving.programs import Reloader
    from typedrag.serving.service import Service
    from typedrag.serving.settings import Limits, Settings, read_settings

    settings = Settings(**read_settings(limits, Limits).model_dump())
    with _stdout_kept():
        programs = [source.open() for source in sources]
    say(f"typedrag answers an agent by {', '.join(loaded.name for loaded in programs)}")

    async def answer() -> None:
        service = Service(programs, settings)
        Reloader(service, sources).watch()
        await over_stdio(service)

    asyncio.run(answer())


@contextmanager
def _stdout_kept() -> Iterator[None]:
    """Redirect to stderr what libraries print, even native ones: stdout belongs to the protocol."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
