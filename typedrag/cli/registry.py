"""`typedrag registry`: register, list and promote compiled programs in MLflow."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import click
from pydantic import PositiveInt

from typedrag.cli import options
from typedrag.cli.terminal import draw_table, echo, print_json, say, wide_console
from typedrag.core.redaction import without_keys
from typedrag.experiments.formats import format_estimate

TrackingURI = Annotated[
    str | None, "MLflow's store; default: MLFLOW_TRACKING_URI, else in typedrag's data folder.", "--tracking-uri"
]


@click.group(name="registry")
def command() -> None:
    """Register, list and promote compiled programs in MLflow."""


def describe_registered(registered: str, tracking_uri: str | None, *, force: bool = False) -> str:
    """A new version, and the command that lets it be served."""
    name, _, version = registered.removeprefix("models:/").rpartition("/")
    store = ["--tracking-uri", without_keys(tracking_uri)] if tracking_uri else []
    words = shlex.join([name, version, *(["--force"] if force else []), *store])
    return f"registered: {registered}; serve it: typedrag registry promote {words}"


@options.command(group=command)
def add(
    folder: Path,
    *,
    name: Annotated[str, "The registered model that it becomes a version of."],
    tracking_uri: TrackingURI = None,
    as_json: options.Json = False,
) -> None:
    """Register the compiled program in FOLDER, without compiling it again.

    It becomes the next version of the registered model, as by typedrag compile … --register NAME.
    """
    from typedrag.experiments.config import TrackingConfig
    from typedrag.experiments.tracking.registry import register_program

    registered = register_program(folder, name, TrackingConfig(uri=tracking_uri))
    if as_json:
        print_json({"registered": registered})
        return
    echo(describe_registered(registered, tracking_uri))


@options.command(group=command, name="list")
def list_programs(*, tracking_uri: TrackingURI = None, as_json: options.Json = False) -> None:
    """List registered programs, with their aliases and scores on the test split.

    The score is the mean of the objective before and after compiling, with its 95 % interval.
    """
    from typedrag.experiments.tracking.registry import registered_programs

    programs = registered_programs(tracking_uri=tracking_uri)
    if as_json:
        print_json(*map(asdict, programs))
        return
    if not programs:
        say("no compiled program is registered: typedrag registry add FOLDER --name NAME")
        return
    rows = []
    for program in programs:
        about = program.about
        if about is None:
            cells = ["", program.problem, "", "", "cannot be loaded", ""]
        else:
            scores = (format_estimate(score) for score in (program.base, program.compiled))
            cells = [program.program, about.metric, *scores, about.verdict or "no better", about.created[:10]]
        rows.append([program.name, str(program.version), ", ".join(program.aliases), *cells])
    headings = ("name", "version", "aliases", "program", "against", "before", "compiled", "verdict", "created")
    words = ("aliases", "program", "against", "verdict", "created")
    gives_way = ("created", "against", "before", "program")
    draw_table(headings, rows, left=words, gives_way=gives_way, console=wide_console(140))


@options.command(group=command)
def promote(
    name: str,
    version: PositiveInt,
    *,
    alias: Annotated[str, "The alias to give."] = "champion",
    force: Annotated[bool, "Promote in spite of all objections."] = False,
    tracking_uri: TrackingURI = None,
    as_json: options.Json = False,
) -> None:
    """Give VERSION of NAME an alias, by which programs are loaded: models:/NAME@champion.

    This is refused if, on the test split, the version is worse than before it was compiled, or the same; if its mean
    of the objective is below that of the version with the alias; or if the two do not compare: not
    measured, another metric, other data, other LMs that answer or judge.
    """
    from typedrag.experiments.tracking.registry import promote as promote_version

    done = promote_version(name, version, alias, force=force, tracking_uri=tracking_uri)
    for objection in done.objections:
        say(f"in spite of this: {objection}")
    if done.warning and not done.objections:
        say(f"{done.warning}: read answers before it is used")
    if as_json:
        print_json(asdict(done))
        return
    before = "none" if done.before is None else "the same" if done.before == version else f"version {done.before}"
    echo(f"models:/{name}@{alias} is version {version}; before: {before}")
