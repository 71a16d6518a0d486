"""`typedrag research papers`: make the tables of the papers, beside what was published."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from pydantic import PositiveInt

from typedrag.cli import options
from typedrag.cli.terminal import RunsProgress, draw_table, echo, print_json, say
from typedrag.core.errors import InputError
from typedrag.experiments.config import EvaluationConfig, SpendingCaps
from typedrag.lms.cost import CostTracker, format_dollars

if TYPE_CHECKING:
    from typedrag.papers.config import Kind, PaperTable
    from typedrag.papers.experiments import TableEstimate
    from typedrag.papers.table import MadeTable

# the settings that each kind of table takes from flags
_READS: dict[Kind, tuple[str, ...]] = {
    "evaluation": ("lm", "scorer", "index", "dataset", "threads", "calls_in_flight", "caps", "tracking"),
    "rankers": ("lm", "limit"),
    "dataset": (),
}
FIELDS = options.field_options(
    EvaluationConfig,
    "index",
    ("lm.spec --lm", "The LM that answers, in the place of all of the table's."),
    "lm.api_base",
    ("scorer.spec --scorer", "The LM behind judges, in the place of all of the table's."),
    ("scorer.api_base --scorer-api-base", "Address of its server; default: --api-base."),
    "threads", "calls_in_flight", "tracking.enabled --tracking", "tracking.uri --tracking-uri",
    "tracking.experiment --experiment",
)  # fmt: skip
Folder = Annotated[Path, "The tables' files."]
Limit = Annotated[PositiveInt | None, "Maximum questions of each experiment; default: all."]
CONFIGS = Path("configs/papers")


@click.group(invoke_without_command=True)
@click.option(
    "--folder", type=click.Path(path_type=Path), default=CONFIGS, show_default=True, help="The tables' files."
)
@click.option("--limit", type=click.IntRange(1), help="Maximum questions of each experiment; default: all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, an object a line.")
@click.pass_context
def command(ctx: click.Context, folder: Path, limit: int | None, as_json: bool) -> None:
    """List the tables of the papers and what each needs; `typedrag research papers run NAME` makes one.

    LM calls, tokens, hours and dollars are estimated by the runs in a table's folder, and unknown before
    `run NAME --estimate` has asked three questions. Hours are those of 3 s a call, 16 at once, or with an
    embedded LM of 80 tokens a second.
    """
    ctx.default_map = {"run": ctx.params}  # what stands before `run` is for it
    if ctx.invoked_subcommand is None:
        _list(folder, limit, as_json)


@options.command(FIELDS, options.field_options(SpendingCaps, *options.CAPS, under="caps"), group=command, timeout=True)
def run(
    ctx: click.Context,
    name: str,
    *,
    folder: Folder = CONFIGS,
    out: Annotated[Path | None, "Folder of the runs and the page; default: papers/NAME."] = None,
    limit: Limit = None,
    variants: Annotated[tuple[str, ...], "--variant", "Only this one of the table's experiments."] = (),
    settings: options.Settings = (),
    estimate: Annotated[bool, "Only estimate the cost, from three questions of each run."] = False,
    as_json: Annotated[bool, "Print the cells as JSON.", "--json"] = False,
    values: dict[str, Any],
) -> None:
    """Make the table NAME, such as typed-rag/table-3, and print each cell beside the published one.

    A page and the same as JSON are written into --out. The same command continues what was interrupted, and a
    larger --limit adds questions. NAME may be a YAML file of your own.
    """
    from typedrag.papers import experiments as made
    from typedrag.papers.config import find_table
    from typedrag.papers.table import fill_table

    table = find_table(name, folder)
    out = out or table.folder
    flags = _table_flags(table, values, limit, ctx.command.params)
    experiments = made.build_experiments(table, flags, settings, variants)
    say(f"{table.name}: {_in_words(made.estimate_table(table, experiments, out, limit))}")
    if missing := made.missing_variables(table, experiments, os.environ):
        raise InputError(
            f"{table.name} needs environment variables that are not set: {'; '.join(missing)}",
            "Set them, or name --lm, --scorer, --index, or only a --variant",
        )
    account, results = CostTracker(), dict[str, made.Results]()
    with RunsProgress(out.exists, "the same command continues") as display, RunsProgress(label="{}") as comparisons:
        hooks = made.Callbacks(display.show, say, comparisons.show)
        if estimate:
            made.ask_samples(table, experiments, out, limit, hooks)
            say(f"{table.name}: {_in_words(made.estimate_table(table, experiments, out, limit))}")
            return
        for variant, own in experiments.items():
            if variant:
                display.end()
                say(f"{table.name}, {variant}")
            results[variant] = made.make_experiment(table, variant, own, out, account, hooks)
    result = fill_table(table, experiments, results, account.spent)
    page = result.write(out)
    if as_json:
        print_json(result.to_dict())
    else:
        _draw(result)
    say(f"{result.made} cells made ({account.spent.usage.in_words()}): {page}")


def _table_flags(
    table: PaperTable, values: dict[str, Any], limit: int | None, known: list[click.Parameter]
) -> dict[str, Any]:
    """The flags that a table of its kind takes; others are refused: a table without its cap would spend freely."""
    fields = _READS[table.config.kind]
    own: dict[str, Any] = {}
    unread = []
    for p in known:
        field, _, inner = (p.name or "").partition("__")
        value = (values.get(field) or {}).get(inner) if inner else values.get(field)
        if field in values and value is not None:
            if field not in fields:
                unread += [max(p.opts, key=len)] if value is not False else []
            elif inner:
                own.setdefault(field, {})[inner] = value
            else:
                own[field] = value
    if unread:
        takes = ", ".join(max(p.opts, key=len) for p in known if (p.name or "").partition("__")[0] in fields)
        hint = "Leave that out" + (f"; it takes {takes}" if takes else "")
        raise InputError(f"{table.name} does not take {', '.join(sorted(unread))}", hint)
    if limit is not None and table.config.kind == "evaluation":
        own["dataset"] = {"limit": limit}
    elif limit is not None and "limit" in fields:
        own["limit"] = limit
    return own


def _list(folder: Path, limit: int | None, as_json: bool) -> None:
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
        return print_json(*lines)
    headings = ("table", "", "needs", "questions", "LM calls", "tokens", "hours", "dollars")
    draw_table(headings, rows, left=("", "needs"))
    for name, what in about.items():
        echo(f"{name}: {what}")
    return None


def _figures(expected: TableEstimate) -> list[str]:
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
    config = result.table.config
    rows = [[row[0].row, *map(str, row)] for row in result.cells]
    draw_table(["", *(column.name for column in config.columns)], rows, title=f"{config.title}: ours / published")
    for reason, places in result.reasons.items():
        echo(f"{len(places)} without a value of ours: {reason}")
