"""`typedrag sweep`: search a program's settings and the weights of coverage with Optuna."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.opening import say
from typedrag.cli.options import (
    cap_options,
    executor_options,
    field_option,
    nested,
    set_option,
    timeout_option,
    together,
)
from typedrag.cli.progress import RunsProgress
from typedrag.core.errors import InputError
from typedrag.files.text_files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from optuna.trial import FrozenTrial

    from typedrag.optimizers.sweep import SweepConfig
    from typedrag.optimizers.sweep.best import Best
    from typedrag.optimizers.sweep.run import SweepResult
    from typedrag.optimizers.sweep.study import Sweep


class _RunByDefault(click.Group):
    """`typedrag sweep FILE.yaml` is `typedrag sweep run FILE.yaml`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for parameter in self.params for name in parameter.opts} | {"--help", "-h"}
        if args and args[0] not in self.commands and args[0] not in own:
            args = ["run", *args]
        return super().parse_args(ctx, args)


def _show_schema(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from typedrag.optimizers.sweep.space import sweep_schema

    click.echo(json.dumps(sweep_schema(), indent=1))
    ctx.exit()


def _show_knobs(ctx: click.Context, _: click.Parameter, program: str | None) -> None:
    if program is None or ctx.resilient_parsing:
        return
    from typedrag.experiments.loading import program_source
    from typedrag.optimizers.sweep.space import all_knobs
    from typedrag.programs import program_class

    for name, knob in all_knobs(program_class(program_source(program).name) if program else None).items():
        click.echo(f"{name}: {knob}")
    ctx.exit()


_STORAGE = click.option("--storage", help="postgresql://…, shared by workers on several machines.")
_STORAGE_SETTING = "storage="
_FOLDER = click.argument("folder", metavar="STUDY", type=click.Path(path_type=Path, exists=True, file_okay=False))


_SETTINGS = together(field_option(), set_option, _STORAGE)


@click.group(name="sweep", cls=_RunByDefault)
@click.option(
    "--schema", is_flag=True, is_eager=True, expose_value=False, callback=_show_schema,
    help="Print the JSON schema of FILE.",
)  # fmt: skip
@click.option(
    "--knobs", is_flag=False, flag_value="", metavar="[PROGRAM]", is_eager=True, expose_value=False,
    callback=_show_knobs, help="List the knobs of PROGRAM with their ranges; without one, of all programs.",
)  # fmt: skip
def command() -> None:
    """Search the settings of a program with Optuna: `typedrag sweep FILE.yaml --out FOLDER`.

    The same command, started again, adds a worker or continues an interrupted sweep. See configs/sweep-*.yaml.
    """


@command.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the sweep.")
@_SETTINGS
@executor_options("local")
@timeout_option
@click.option("--json", "as_json", is_flag=True, help="Print the front as JSON.")
@click.pass_context
def run(
    ctx: click.Context,
    file: Path,
    out: Path,
    executor: str,
    workers: int | None,
    storage: str | None,
    fields: dict[str, str],
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run trials until the sweep's limits are reached; the front goes to stdout, everything else to stderr.

    FILE describes the sweep. The exit status is 1 if another limit than that of trials has stopped it.
    """
    from typedrag.optimizers.sweep.config import keep_file, read_sweep

    config = read_sweep(file, _flags(storage, fields), settings)
    run_it = _runner(executor, workers)
    stopped = _run(config, out, run_it, as_json=as_json, on_begun=lambda: keep_file(file, out))
    say(f"next: {_next(out, storage, settings, fields)}")
    ctx.exit(int(bool(stopped)))


@command.command()
@_FOLDER
@click.option("--within", metavar="2%-of-best", help="Choose among trials nearly as good as the best.")
@click.option("--cheapest", is_flag=True, help="Choose the trial with the fewest tokens per answer.")
@click.option("--trial", "number", type=click.IntRange(0), help="Choose the trial of this number.")
@click.option("--register", "register_as", help="Register the best in MLflow as a version of the model of this name.")
@_SETTINGS
@timeout_option
@cap_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def best(
    folder: Path,
    within: str | None,
    cheapest: bool,
    number: int | None,
    register_as: str | None,
    storage: str | None,
    fields: dict[str, str],
    settings: tuple[str, ...],
    as_json: bool,
    **caps: Any,
) -> None:
    """Measure the best trial of a sweep on held-out questions, and save it as a program.

    STUDY is the --out of a sweep. The program is saved in its folder best/program. The original program is measured
    too; the part of the gain that is lost on held-out questions was due to the choice.
    """
    from typedrag.experiments.config import SpendingCaps
    from typedrag.optimizers.sweep import open_sweep
    from typedrag.optimizers.sweep.best import choose, measure_best, parse_share
    from typedrag.optimizers.sweep.config import read_kept

    share = parse_share(within) if within is not None else None
    config = read_kept(folder, _flags(storage, fields), settings)
    with open_sweep(config, folder) as sweep, RunsProgress() as display:
        chosen = choose(sweep, within=share, cheapest=cheapest, number=number)
        say(f"trial {chosen.trial}, {chosen.chosen}: {_point(chosen.point)}")
        result = measure_best(
            sweep, chosen, register_as=register_as, caps=SpendingCaps(**nested(caps)["caps"]),
            on_progress=display.show, on_notice=say,
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False, indent=1))
    else:
        _draw_best(result)
    say(f"saved: {result.folder}")
    if result.registered:
        say(f"registered: {result.registered}; serve it: typedrag registry promote {register_as} VERSION")


@command.command()
@_FOLDER
@click.option("--out", type=click.Path(path_type=Path), help="Write the page to this Markdown file.")
@click.option("--note", default="", help="Note to readers, such as the machine it ran on.")
@_SETTINGS
def report(
    folder: Path,
    out: Path | None,
    note: str,
    storage: str | None,
    fields: dict[str, str],
    settings: tuple[str, ...],
) -> None:
    """Print a sweep as a Markdown page: its front, the knobs that mattered, and the best on held-out questions.

    STUDY is the --out of a sweep. Figures are written into its folder figures. No LM is needed.
    """
    from typedrag.optimizers.sweep import view_sweep
    from typedrag.optimizers.sweep.config import read_kept
    from typedrag.optimizers.sweep.report import sweep_page, write_figures

    config = read_kept(folder, _flags(storage, fields), settings)
    words = ["typedrag", "sweep", "report", str(folder), *(("--out", str(out)) if out else ())]
    made_by = shlex.join(words) + (" --note …" if note else "")  # the page has the note in full
    figures = folder / "figures"
    with view_sweep(config, folder) as sweep:
        page = sweep_page(sweep, made_by, note)
        figures.mkdir(exist_ok=True)
        *_, drawn = write_figures(sweep, figures)
    say(str(drawn))
    if out:
        write_text(out, page)
        say(str(out))
    else:
        click.echo(page, nl=False)


def _flags(storage: str | None, fields: dict[str, str]) -> dict[str, Any]:
    return {**({"dataset": {"fields": fields}} if fields else {}), **({"storage": storage} if storage else {})}


def _next(out: Path, storage: str | None, settings: tuple[str, ...], fields: dict[str, str]) -> str:
    """The command for the best of the same study, without the storage's address, which may hold a password."""
    hidden = bool(storage) or any(setting.startswith(_STORAGE_SETTING) for setting in settings)
    again = [word for s in settings if not s.startswith(_STORAGE_SETTING) for word in ("--set", s)]
    again += [word for name, column in fields.items() for word in ("--field", f"{name}={column}")]
    return shlex.join(["typedrag", "sweep", "best", str(out), *again]) + (" --storage …" if hidden else "")


def _runner(executor: str, workers: int | None) -> Callable[..., SweepResult]:
    """The runner of a sweep: this process, or workers of a Ray cluster."""
    from typedrag.experiments.ray_pool import ray_address
    from typedrag.optimizers.sweep import run_sweep

    if ray_address(executor) is None:
        if workers:
            raise InputError("--workers are of --executor ray", "Leave them out, or add it")
        return run_sweep
    from typedrag.optimizers.sweep.run import run_sweep_on_ray

    return partial(run_sweep_on_ray, executor=executor, workers=workers)


def _run(
    config: SweepConfig, out: Path, run_it: Callable[..., SweepResult], *, as_json: bool, on_begun: Callable[[], None]
) -> str:
    """Run a sweep and return why it was stopped; empty if it was not."""
    from typedrag.optimizers.sweep import SweepProgress
    from typedrag.optimizers.sweep.report import counts, front_rows

    with RunsProgress(lambda: True, "the same command continues the sweep") as display:

        def on_trial(trial: FrozenTrial) -> None:
            display.end()
            say(_trial(trial, config))

        watching = SweepProgress(begun=on_begun, trial=on_trial, progress=display.show, notice=say)
        swept = run_it(config, out, watching=watching)
    say(counts(swept.sweep))
    if swept.stopped:
        say(f"stopped: {swept.stopped}")
    if as_json:
        click.echo(json.dumps([_as_dict(t, swept.sweep) for t in swept.sweep.front], ensure_ascii=False, indent=1))
    else:
        from typedrag.cli.tables import draw_table

        headings, *rows = front_rows(swept.sweep)
        draw_table(headings, rows, title="the front")
    return swept.stopped


def _trial(trial: FrozenTrial, config: SweepConfig) -> str:
    from typedrag.optimizers.sweep.study import PROBLEM, mean_value, values_of_trial

    values = values_of_trial(trial)
    means = ((o.measure, mean_value(values, o.measure)) for o in config.objectives)
    measured = ", ".join(f"{measure} {mean:.4g}" for measure, mean in means if mean is not None)
    ended = f" (pruned: {trial.user_attrs[PROBLEM]})" if PROBLEM in trial.user_attrs else ""
    return f"trial {trial.number}: {_point(trial.params)}: {measured}{ended}"


def _point(point: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in point.items())


def _as_dict(trial: FrozenTrial, sweep: Sweep) -> dict[str, Any]:
    values = dict(zip((o.measure for o in sweep.parts.config.objectives), trial.values, strict=True))
    return {"trial": trial.number, "knobs": trial.params, "values": values}


def _draw_best(best: Best) -> None:
    from typedrag.cli.tables import draw_table
    from typedrag.experiments.formats import format_estimate
    from typedrag.experiments.held_out import format_truth, format_verdict
    from typedrag.optimizers.sweep.report import measured_row

    headings = ("", "as it was", "best", "gain", "p", "gain where chosen", "gain lost")
    title = f"trial {best.trial} on {best.settings['n']} questions of {best.settings['held out']}"
    draw_table(headings, map(measured_row, best.measured), title=title)
    verdict = format_verdict(best.verdict, best.truth)
    programs = best.settings["programs"]
    corrected = f", corrected for {programs} trials measured on these questions" if programs > 1 else ""
    click.echo(f"verdict: {verdict}, against the program as it was, by {best.measured[0].measure}{corrected}")
    if answered := best.measured[0].gain_answered:
        click.echo(f"over the questions that both answered: {format_estimate(answered, signed=True)}")
    if best.truth and best.verdict != "less truthful":
        click.echo(format_truth(best.truth))
