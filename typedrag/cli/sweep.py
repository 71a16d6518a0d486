"""`typedrag sweep`: search a program's settings and the weights of coverage with Optuna."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from pydantic import DirectoryPath, NonNegativeInt

from typedrag.cli import options
from typedrag.cli.registry import describe_registered
from typedrag.cli.terminal import RunsProgress, draw_table, echo, print_json, say
from typedrag.core.errors import InputError
from typedrag.experiments.config import EvaluationConfig, SpendingCaps
from typedrag.experiments.formats import format_estimate
from typedrag.files.text_files import write_text

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from typedrag.optimizers.sweep import SweepConfig
    from typedrag.optimizers.sweep.best import Best


class _RunByDefault(click.Group):
    """`typedrag sweep FILE.yaml` is `typedrag sweep run FILE.yaml`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for parameter in self.params for name in parameter.opts} | {"--help", "-h"}
        if args and args[0] not in self.commands and args[0] not in own:
            args = ["run", *args]
        return super().parse_args(ctx, args)


def _show_schema(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from typedrag.optimizers.sweep.space import sweep_schema

        echo(json.dumps(sweep_schema(), indent=1))
        ctx.exit()


def _show_knobs(ctx: click.Context, _: click.Parameter, program: str | None) -> None:
    if program is None or ctx.resilient_parsing:
        return
    from typedrag.experiments.loading import program_source
    from typedrag.optimizers.sweep.space import all_knobs
    from typedrag.programs import program_class

    for name, knob in all_knobs(program_class(program_source(program).name) if program else None).items():
        echo(f"{name}: {knob}")
    ctx.exit()


Study = Annotated[DirectoryPath, options.Metavar("STUDY")]
Storage = Annotated[str | None, "postgresql://…, shared by workers on several machines."]


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


@options.command(options.field_options(EvaluationConfig, "executor", "workers"), group=command, timeout=True)
def run(
    ctx: click.Context,
    file: Annotated[Path, options.Metavar("FILE")],
    *,
    out: Annotated[Path, "Folder of the sweep."],
    fields: options.FieldMapping,
    settings: options.Settings = (),
    storage: Storage = None,
    as_json: Annotated[bool, "Print the trials of the front as JSON, one a line.", "--json"] = False,
    values: dict[str, Any],
) -> None:
    """Run trials until the sweep's limits are reached; the front goes to stdout, everything else to stderr.

    FILE describes the sweep. The exit status is 1 if another limit than that of trials has stopped it.
    """
    from typedrag.experiments.ray_pool import ray_address
    from typedrag.optimizers.sweep import SweepProgress, run_sweep
    from typedrag.optimizers.sweep.best import why_no_best
    from typedrag.optimizers.sweep.config import keep_file, read_sweep
    from typedrag.optimizers.sweep.report import counts, front_rows
    from typedrag.optimizers.sweep.run import run_sweep_on_ray

    config = read_sweep(file, _flags(storage, fields), settings)
    executor, workers = values["executor"] or "local", values["workers"]
    on_ray = ray_address(executor) is not None
    if workers and not on_ray:
        raise InputError("--workers are of --executor ray", "Leave them out, or add it")
    run_it = partial(run_sweep_on_ray, executor=executor, workers=workers) if on_ray else run_sweep
    with RunsProgress(lambda: True, "the same command continues the sweep") as display:

        def on_trial(trial: FrozenTrial) -> None:
            display.end()
            say(_describe_trial(trial, config))

        watching = SweepProgress(
            begun=lambda: keep_file(file, out), trial=on_trial, progress=display.show, notice=say
        )  # fmt: skip
        swept = run_it(config, out, watching=watching)
    say(counts(swept))
    if swept.stopped:
        say(f"stopped: {swept.stopped}")
    if as_json:
        measures = [objective.measure for objective in config.objectives]
        for trial in swept.front:
            measured = dict(zip(measures, trial.values, strict=True))
            print_json({"trial": trial.number, "knobs": trial.params, "values": measured})
    else:
        headings, *rows = front_rows(swept)
        draw_table(headings, rows, title="the front", gives_way=())
    say(f"next: {_next_command(out, storage, settings, fields)}" if swept.front else ". ".join(why_no_best(swept)))
    ctx.exit(int(bool(swept.stopped)))


@options.command(options.field_options(SpendingCaps, *options.CAPS), group=command, timeout=True)
def best(
    folder: Study,
    *,
    within: Annotated[str | None, options.Metavar("2%-of-best"), "Choose among trials nearly as good as the best."]
    = None,
    cheapest: Annotated[bool, "Choose the trial with the fewest tokens per answer."] = False,
    number: Annotated[NonNegativeInt | None, "--trial", "Choose the trial of this number."] = None,
    register_as: Annotated[
        str | None, "--register", "Register the best in MLflow as a version of the model of this name."
    ] = None,
    fields: options.FieldMapping,
    settings: options.Settings = (),
    storage: Storage = None,
    as_json: options.Json = False,
    values: dict[str, Any],
) -> None:  # fmt: skip
    """Measure the best trial of a sweep on held-out questions, and save it as a program.

    STUDY is the --out of a sweep. The program is saved in its folder best/program. The original program is measured
    too; the part of the gain that is lost on held-out questions was due to the choice.
    """
    from typedrag.optimizers.sweep import open_sweep
    from typedrag.optimizers.sweep.best import choose, measure_best, parse_share
    from typedrag.optimizers.sweep.config import read_kept

    share = parse_share(within) if within is not None else None
    config = read_kept(folder, _flags(storage, fields), settings)
    with open_sweep(config, folder) as sweep, RunsProgress() as display:
        chosen = choose(sweep, within=share, cheapest=cheapest, number=number)
        say(f"trial {chosen.trial}, {chosen.chosen}: {_describe_point(chosen.point)}")
        result = measure_best(
            sweep, chosen, register_as=register_as, caps=SpendingCaps(**values),
            on_progress=display.show, on_notice=say,
        )  # fmt: skip
    if as_json:
        print_json(result.to_dict())
    else:
        _draw_best(result)
    say(f"saved: {result.folder}")
    if result.registered:
        say(describe_registered(result.registered, config.tracking.uri))


@options.command(group=command)
def report(
    folder: Study,
    *,
    out: Annotated[Path | None, "Write the page to this Markdown file."] = None,
    note: Annotated[str, "Note to readers, such as the machine it ran on."] = "",
    fields: options.FieldMapping,
    settings: options.Settings = (),
    storage: Storage = None,
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
        echo(page, nl=False)


def _flags(storage: str | None, fields: dict[str, str]) -> dict[str, Any]:
    return {**({"dataset": {"fields": fields}} if fields else {}), **({"storage": storage} if storage else {})}


def _next_command(out: Path, storage: str | None, settings: tuple[str, ...], fields: dict[str, str]) -> str:
    """The command for the best of the same study, without the storage's address, which may hold a password."""
    hidden = bool(storage) or any(setting.startswith("storage=") for setting in settings)
    again = [word for s in settings if not s.startswith("storage=") for word in ("--set", s)]
    again += [word for name, column in fields.items() for word in ("--field", f"{name}={column}")]
    return shlex.join(["typedrag", "sweep", "best", str(out), *again]) + (" --storage …" if hidden else "")


def _describe_trial(trial: FrozenTrial, config: SweepConfig) -> str:
    from typedrag.optimizers.sweep.study import PROBLEM, mean_value, values_of_trial

    values = values_of_trial(trial)
    means = ((o.measure, mean_value(values, o.measure)) for o in config.objectives)
    measured = ", ".join(f"{measure} {mean:.4g}" for measure, mean in means if mean is not None)
    ended = f" (pruned: {trial.user_attrs[PROBLEM]})" if PROBLEM in trial.user_attrs else ""
    return f"trial {trial.number}: {_describe_point(trial.params)}: {measured}{ended}"


def _describe_point(point: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in point.items())


def _draw_best(best: Best) -> None:
    from typedrag.experiments.held_out import format_truth, format_verdict
    from typedrag.optimizers.sweep.report import measured_row

    headings = ("", "as it was", "best", "gain", "p", "gain where chosen", "gain lost")
    title = f"trial {best.trial} on {best.settings['n']} questions of {best.settings['held out']}"
    gives_way = ("gain lost", "gain where chosen", "best", "as it was")
    draw_table(headings, map(measured_row, best.measured), title=title, gives_way=gives_way)
    verdict = format_verdict(best.verdict, best.truth)
    programs = best.settings["programs"]
    corrected = f", corrected for {programs} trials measured on these questions" if programs > 1 else ""
    echo(f"verdict: {verdict}, against the program as it was, by {best.measured[0].measure}{corrected}")
    if answered := best.measured[0].gain_answered:
        echo(f"over the questions that both answered: {format_estimate(answered, signed=True)}")
    if best.truth and best.verdict != "less truthful":
        echo(format_truth(best.truth))
