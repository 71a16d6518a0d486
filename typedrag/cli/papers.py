"""`typedrag papers`: make the tables of the papers, beside what was published."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli import options
from typedrag.cli.opening import say
from typedrag.cli.progress import RunsProgress
from typedrag.core.errors import InputError

if TYPE_CHECKING:
    from typedrag.papers.config import Kind, PaperTable
    from typedrag.papers.experiments import TableEstimate
    from typedrag.papers.table import MadeTable

_AGAIN = "the same command continues"
_FOLDER = click.option(
    "--folder", type=click.Path(path_type=Path), default=Path("configs/papers"), show_default=True,
    help="The tables' files.",
)  # fmt: skip
_LIMIT = click.option("--limit", type=click.IntRange(1), help="Maximum questions of each experiment; default: all.")
_READS: dict[Kind, tuple[str, ...]] = {
    "evaluation": ("lm", "scorer", "index", "dataset", "threads", "calls_in_flight", "caps", "tracking"),
    "rankers": ("lm", "limit"),
    "dataset": (),
}
"""The settings that each kind of table takes from flags."""


@click.group(invoke_without_command=True)
@_FOLDER
@_LIMIT
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_context
def command(ctx: click.Context, folder: Path, limit: int | None, as_json: bool) -> None:
    """List the tables of the papers and what each needs; `typedrag papers run NAME` makes one.

    LM calls, tokens, hours and dollars are estimated by the runs in a table's folder, and unknown before
    `papers run NAME --estimate` has asked three questions. Hours are those of 3 s a call, 16 at once, or with an
    embedded LM of 80 tokens a second.
    """
    ctx.default_map = {"run": ctx.params}  # what stands before `run` is for it
    if ctx.invoked_subcommand is None:
        _list(folder, limit, as_json)


@command.command()
@click.argument("name")
@_FOLDER
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the runs and the page; default: papers/NAME.")
@_LIMIT
@click.option("--variant", "variants", multiple=True, help="Only this one of the table's experiments; repeatable.")
@options.set_option
@options.index_option
@click.option("--lm", "lm__spec", help="The LM that answers, in the place of all of the table's.")
@options.timeout_option
@click.option("--api-base", "lm__api_base", help="Address of an OpenAI-compatible server, for the LM.")
@options.scorer_options("The LM behind judges, in the place of all of the table's.")
@options.speed_options("Questions and judgments")
@options.cap_options
@options.tracking_options
@click.option(
    "--estimate", "only_estimated", is_flag=True, help="Only estimate the cost, from three questions of each run."
)
@click.option("--json", "as_json", is_flag=True, help="Print the cells as JSON.")
@click.pass_context
def run(
    ctx: click.Context,
    /,
    name: str,
    folder: Path,
    out: Path | None,
    limit: int | None,
    variants: tuple[str, ...],
    settings: tuple[str, ...],
    only_estimated: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Make the table NAME, such as typed-rag/table-3, and print each cell beside the published one.

    A page and the same as JSON are written into --out. The same command continues what was interrupted, and a
    larger --limit adds questions. NAME may be a YAML file of your own.
    """
    from typedrag.lms.cost import CostTracker
    from typedrag.papers.config import find_table
    from typedrag.papers.experiments import (
        Callbacks,
        Results,
        ask_samples,
        build_experiments,
        estimate_table,
        make_experiment,
        missing_variables,
    )
    from typedrag.papers.table import fill_table

    table = find_table(name, folder)
    _check_flags(table, flags, ctx.command.params)
    out = out or table.folder
    experiments = build_experiments(table, _flags_for(table, flags, limit), settings, variants)
    say(f"{table.name}: {_in_words(estimate_table(table, experiments, out, limit))}")
    if missing := missing_variables(table, experiments, os.environ):
        raise InputError(
            f"{table.name} needs environment variables that are not set: {'; '.join(missing)}",
            "Set them, or name --lm, --scorer, --index, or only a --variant",
        )
    account, results = CostTracker(), dict[str, Results]()
    with RunsProgress(out.exists, _AGAIN) as display, RunsProgress(label="{}") as comparisons:
        hooks = Callbacks(display.show, say, comparisons.show)
        if only_estimated:
            ask_samples(table, experiments, out, limit, hooks)
            say(f"{table.name}: {_in_words(estimate_table(table, experiments, out, limit))}")
            return
        for variant, values in experiments.items():
            if variant:
                display.end()
                say(f"{table.name}, {variant}")
            results[variant] = make_experiment(table, variant, values, out, account, hooks)
    result = fill_table(table, experiments, results, account.spent)
    page = result.write(out)
    if as_json:
        click.echo(json.dumps(result.to_dict(), ensure_ascii=False, indent=1))
    else:
        _draw(result)
    say(f"{result.made} cells made ({account.spent.usage.in_words()}): {page}")


def _check_flags(table: PaperTable, flags: dict[str, Any], known: list[click.Parameter]) -> None:
    """Refuse flags that ask for what a table of its kind does not do; without a cap, it would spend without limit."""
    fields = _READS[table.config.kind]
    names = {p.name or "": max(p.opts, key=len) for p in known}
    unread = [n for n, value in flags.items() if value not in (None, False) and n.partition("__")[0] not in fields]
    if unread:
        own = ", ".join(option for name, option in names.items() if name.partition("__")[0] in fields)
        raise InputError(
            f"{table.name} does not take {', '.join(names[n] for n in unread)}",
            "Leave that out" + (f"; it takes {own}" if own else ""),
        )


def _flags_for(table: PaperTable, flags: dict[str, Any], limit: int | None) -> dict[str, Any]:
    kind = table.config.kind
    values = options.nested(flags)
    values |= {"dataset": {"limit": limit}} if kind == "evaluation" else {"limit": limit}
    set_ = {name: _chosen(value) for name, value in values.items() if name in _READS[kind]}
    return {name: value for name, value in set_.items() if value not in (None, {})}


def _chosen(value: Any) -> Any:
    return options.chosen(**value) if isinstance(value, dict) else value


def _list(folder: Path, limit: int | None, as_json: bool) -> None:
    from typedrag.cli.tables import draw_table
    from typedrag.papers.config import find_tables
    from typedrag.papers.experiments import build_experiments, estimate_table, required_variables

    rows, lines, about = [], [], dict[str, str]()
    for table in find_tables(folder):
        experiments = build_experiments(table, {})
        expected = estimate_table(table, experiments, table.folder, limit)
        needs = required_variables(experiments)
        set_ = [f"{name} ✓" if name in os.environ else name for name in needs]
        about |= {n: table.config.needs[n] for n in needs if n in table.config.needs}
        spent = expected.spent
        rows.append([table.name, table.config.title, ", ".join(set_), *_figures(expected)])
        lines.append(
            {
                "name": table.name, "title": table.config.title,
                "needs": {n: {"is": table.config.needs.get(n, ""), "set": n in os.environ} for n in needs},
                "questions": expected.questions, "lm_calls": spent and spent.usage.lm_calls,
                "tokens": spent and spent.tokens, "hours": expected.hours, "dollars": spent and spent.cost,
            }
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(lines, ensure_ascii=False, indent=1))
        return
    headings = ("table", "", "needs", "questions", "LM calls", "tokens", "hours", "dollars")
    draw_table(headings, rows, left=("", "needs"))
    for name, what in about.items():
        click.echo(f"{name}: {what}")


def _figures(expected: TableEstimate) -> list[str]:
    from typedrag.lms.cost import format_dollars

    spent, questions = expected.spent, "?" if expected.questions is None else f"{expected.questions:,}"
    if spent is None:
        return [questions, "?", "?", "?", "?"]
    dollars = "–" if spent.cost is None else format_dollars(spent.cost)
    return [questions, f"{spent.usage.lm_calls:,}", f"{spent.tokens:,}", f"{expected.hours:,.1f}", dollars]


def _in_words(expected: TableEstimate) -> str:
    questions, calls, tokens, hours, dollars = _figures(expected)
    if expected.spent is None:
        return f"{questions} questions; --estimate asks three of each run to tell what they will take"
    price = "" if dollars == "–" else f", {dollars}"
    return f"{questions} questions, about {calls} LM calls, {tokens} tokens, {hours} hours{price}"


def _draw(result: MadeTable) -> None:
    from typedrag.cli.tables import draw_table

    config = result.table.config
    rows = [[row[0].row, *map(str, row)] for row in result.cells]
    draw_table(["", *(column.name for column in config.columns)], rows, title=f"{config.title}: ours / published")
    for reason, places in result.reasons.items():
        click.echo(f"{len(places)} without a value of ours: {reason}")
