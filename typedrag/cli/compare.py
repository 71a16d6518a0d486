"""`typedrag compare`: runs against a baseline, with intervals and paired tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from typedrag.experiments.compare import By, Difference

_WIDTH = 120
_MARKS = {"better": "+", "worse": "-", "": ""}


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN_A RUN_B…")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    metavar="METRIC[/MEASURE]",
    help="A measure, such as linkage or cost/tokens. Repeatable. Default: all that the runs share.",
)
@click.option("--by", type=click.Choice(["type", "subset"]), multiple=True, help="Also compare by type or subset.")
@click.option("--seed", default=0, show_default=True, help="Random seed of the resampling.")
@click.option("--force", is_flag=True, help="Compare runs even if their data or judges differ.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    folders: tuple[Path, ...], measures: tuple[str, ...], by: tuple[By, ...], seed: int, force: bool, as_json: bool
) -> None:
    """Compare runs with RUN_A on the questions that they share.

    A question that a run failed to answer counts as answered wrongly. Each difference has its 95 %
    interval (paired bootstrap; none for fewer than 10 questions) and the number of questions needed to
    show it with a probability of 0.8. One measure of a metric is tested: it has the p-value of the
    paired permutation test, and that p-value corrected for all the tests shown (Bonferroni; costs, types
    and subsets apart). If the corrected one is below 0.05, + marks a better and - a worse run. A warning
    tells if a run is better by a judge and less truthful, both beyond chance.
    """
    from rich.markup import escape

    from typedrag.cli.opening import say
    from typedrag.cli.tables import wide_console
    from typedrag.experiments.compare import compare
    from typedrag.experiments.results import read_run

    comparison = compare([read_run(f) for f in folders], measures=measures, by=by, seed=seed, force=force)
    for conflict in comparison.conflicts:
        say(f"in spite of {conflict}")
    if as_json:
        click.echo(json.dumps(comparison.to_dict(), ensure_ascii=False, indent=1))
        return
    console = wide_console(_WIDTH)
    for run, differences in groupby(comparison.differences, key=lambda d: d.run):
        _print(run, comparison.baseline, list(differences), console)
    for label, tally in comparison.tallies.items():
        console.print(escape(f"{label}: {tally.failed} of {tally.questions} failed; {tally.sources}"))
    console.print("+ better, - worse: corrected p below 0.05")
    console.print("needs: how many questions would show such a difference")
    for warning in comparison.warnings:
        console.print(f"[bold]warning:[/bold] {escape(warning)}", soft_wrap=True)


def _print(run: str, baseline: str, differences: Sequence[Difference], console: Console) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from typedrag.experiments.formats import format_count, format_estimate, format_p, format_value

    table = Table(box=box.SIMPLE_HEAD, title=escape(f"{run} against {baseline}"), title_justify="left", pad_edge=False)
    table.add_column("mean of", overflow="fold")
    for heading in ("n", "baseline", "run", "difference", "", "p", "corrected p", "needs"):
        table.add_column(heading, justify="left" if heading == "" else "right", no_wrap=True)
    for d in differences:
        table.add_row(
            escape(d.measure if d.stratum.by == "all" else f"  {d.stratum.name}"),
            str(d.n),
            format_value(d.baseline.value if d.baseline else None),
            format_value(d.other.value if d.other else None),
            format_estimate(d.difference, signed=True),
            _MARKS[d.verdict],
            format_p(d.p),
            format_p(d.corrected_p),
            format_count(d.questions_needed),
        )
    console.print(table)
    for d in differences:
        if d.stratum.by == "all" and d.answered and d.answered.difference:
            of_both = format_estimate(d.answered.difference, signed=True)
            console.print(escape(f"{d.measure} over the {d.answered.n} questions that both answered: {of_both}"))
    for reasons, measures in _left_out(differences).items():
        console.print(escape(f"left out of {', '.join(measures)}: {reasons}"))


def _left_out(differences: Sequence[Difference]) -> dict[str, list[str]]:
    """The measures that questions are left out of, by the reasons."""
    by_reasons: dict[str, list[str]] = {}
    for d in differences:
        if d.stratum.by == "all" and d.left_out:
            by_reasons.setdefault(", ".join(f"{n} {reason}" for reason, n in d.left_out.items()), []).append(d.measure)
    return by_reasons
