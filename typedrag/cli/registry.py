"""`typedrag registry`: list and promote compiled programs registered in MLflow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from typedrag.experiments.tracking.registry import RegisteredProgram

_WIDTH = 140
_tracking_uri = click.option(
    "--tracking-uri", help="MLflow's store; default: MLFLOW_TRACKING_URI, else in typedrag's data folder."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(name="registry")
def command() -> None:
    """List and promote compiled programs registered in MLflow."""


@command.command("list")
@_tracking_uri
@_json
def list_programs(tracking_uri: str | None, as_json: bool) -> None:
    """List registered programs, with their aliases and scores on the test split.

    The score is the mean of the objective before and after compiling, with its 95 % interval.
    """
    from typedrag.experiments.tracking.registry import registered_programs

    programs = registered_programs(tracking_uri=tracking_uri)
    if as_json:
        click.echo(json.dumps([asdict(program) for program in programs], ensure_ascii=False, indent=1))
    elif programs:
        _draw(programs)
    else:
        from typedrag.cli.opening import say

        say("no compiled program is registered: typedrag compile … --register NAME")


@command.command()
@click.argument("name")
@click.argument("version", type=click.IntRange(1))
@click.option("--alias", default="champion", show_default=True, help="The alias to give.")
@click.option("--force", is_flag=True, help="Promote in spite of all objections.")
@_tracking_uri
@_json
def promote(name: str, version: int, alias: str, force: bool, tracking_uri: str | None, as_json: bool) -> None:
    """Give VERSION of NAME an alias, by which programs are loaded: models:/NAME@champion.

    This is refused if, on the test split, the version is worse than before it was compiled; if its mean
    of the objective is below that of the version with the alias; or if the two do not compare: not
    measured, another metric, other data, other LMs that answer or judge.
    """
    from typedrag.cli.opening import say
    from typedrag.experiments.tracking.registry import promote as promote_version

    done = promote_version(name, version, alias, force=force, tracking_uri=tracking_uri)
    for objection in done.objections:
        say(f"in spite of this: {objection}")
    if as_json:
        click.echo(json.dumps(asdict(done), ensure_ascii=False, indent=1))
        return
    before = "none" if done.before is None else "the same" if done.before == version else f"version {done.before}"
    click.echo(f"models:/{name}@{alias} is version {version}; before: {before}")


def _draw(programs: Sequence[RegisteredProgram]) -> None:
    from typedrag.cli.tables import draw_table, wide_console
    from typedrag.experiments.formats import format_estimate

    rows = []
    for program in programs:
        about = program.about
        if about is None:
            cells = ["", program.problem, "", "", "cannot be loaded", ""]
        else:
            scores = (format_estimate(score) for score in (program.base, program.compiled))
            cells = [program.program, about.metric, *scores, about.verdict, about.created[:10]]
        row = [program.name, str(program.version), ", ".join(program.aliases), *cells]
        rows.append([_printable(cell) for cell in row])
    headings = ("name", "version", "aliases", "program", "against", "before", "compiled", "verdict", "created")
    words = ("aliases", "program", "against", "verdict", "created")
    draw_table(headings, rows, left=words, console=wide_console(_WIDTH))


def _printable(text: str) -> str:
    """A stranger's text without control characters, which could steer a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
