"""`typedrag compare` and `typedrag report`: runs against a baseline, at the terminal or as one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import FilePath
from rich.console import Console
from rich.markup import escape

from typedrag.cli import options
from typedrag.cli.terminal import draw_table, print_json, say, wide_console
from typedrag.experiments.formats import format_count, format_estimate, format_p, format_value
from typedrag.experiments.results import FEWEST, read_run

if TYPE_CHECKING:
    from typedrag.experiments.compare import Difference
    from typedrag.experiments.labels import GradedDifference

_MARKS = {"better": "+", "worse": "-", "": ""}
Runs = Annotated[tuple[Path, ...], options.Metavar("RUN…")]
Seed = Annotated[int, "Random seed of the resampling."]


@options.command(name="compare")
def command(
    folders: Annotated[tuple[Path, ...], options.Metavar("RUN_A RUN_B…")],
    *,
    measures: Annotated[
        tuple[str, ...], options.Metavar("METRIC[/MEASURE]"), "--measure",
        "A measure, such as linkage or cost/tokens. Repeatable. Default: one of each metric that the runs share.",
    ] = (),
    by: Annotated[
        tuple[Literal["type", "subset"], ...],
        f"Also compare by type or subset, those with {FEWEST} questions or more.",
    ] = (),
    all_measures: Annotated[bool, "Show all measures of each metric, not only its first."] = False,
    labels: Annotated[FilePath | None, "Grades that a person gave to some of the answers by typedrag label."] = None,
    seed: Seed = 0,
    force: Annotated[bool, "Compare runs even if their data or judges differ."] = False,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Compare runs with RUN_A on the questions that they share.

    First comes a sentence about each run. A question that a run failed to answer counts as answered wrongly.
    Each difference has its 95 % interval (paired bootstrap; none for fewer than 10 questions) and the number of
    questions needed to
    show it with a probability of 0.8. One measure of a metric is tested: it has the p-value of the
    paired permutation test, and that p-value corrected for all the tests shown (Bonferroni; costs, types
    and subsets apart). If the corrected one is below 0.05, + marks a better and - a worse run. A warning
    tells if a run is better by a judge and less truthful, both beyond chance.

    With --labels, means and differences are also those of a person's grades, by the grades alone and with
    the help of each tested measure, which has judged all answers (prediction-powered intervals).
    """
    from typedrag.experiments.compare import compare
    from typedrag.experiments.labels import Grades

    runs, grades = [read_run(f) for f in folders], Grades(labels) if labels else None
    comparison = compare(runs, measures=measures, by=by, seed=seed, force=force, grades=grades)
    for conflict in comparison.conflicts:
        say(f"in spite of {conflict}")
    if as_json:
        print_json(comparison.to_dict())
        return
    console = wide_console(120)
    for run in comparison.runs:
        console.print(escape(f"{comparison.sentence(run)}."), soft_wrap=True)
    for run, differences in groupby(comparison.differences, key=lambda d: d.run):
        shown = list(differences)
        if not (measures or all_measures):
            headlines = {d.measure for d in comparison.headlines(run)}
            shown = [d for d in shown if d.measure in headlines or d.measure.startswith("cost/")]
        _print_run(run, comparison.baseline, shown, console)
    for run, graded in groupby(comparison.graded, key=lambda d: d.run):
        _print_graded(run, comparison.baseline, graded, console)
    for label, tally in comparison.tallies.items():
        console.print(escape(f"{label}: {tally.failed} of {tally.questions} failed; {tally.sources}"))
    console.print("+ better, - worse: corrected p below 0.05")
    console.print("needs: how many questions would show such a difference")
    for warning in comparison.warnings:
        console.print(f"[bold]warning:[/bold] {escape(warning)}", soft_wrap=True)


def _print_run(run: str, baseline: str, differences: Sequence[Difference], console: Console) -> None:
    rows = []
    for d in differences:
        if d.stratum.by == "all" or d.n >= FEWEST:
            name = d.measure if d.stratum.by == "all" else f"  {d.stratum.name}"
            means = (format_value(each.value if each else None) for each in (d.baseline, d.other))
            tested = (_MARKS[d.verdict], format_p(d.p), format_p(d.corrected_p), format_count(d.questions_needed))
            rows.append((name, str(d.n), *means, format_estimate(d.difference, signed=True), *tested))
    headings = ("mean of", "n", "baseline", "run", "difference", "", "p", "corrected p", "needs")
    title, gives_way = f"{run} against {baseline}", ("p", "n", "needs", "run", "baseline")
    draw_table(headings, rows, title=title, left=("",), gives_way=gives_way, console=console)
    if few := dict.fromkeys(d.stratum.name for d in differences if d.stratum.by != "all" and d.n < FEWEST):
        console.print(escape(f"not shown, with fewer than {FEWEST} questions: {', '.join(few)}"))
    left_out: dict[str, list[str]] = {}
    for d in (d for d in differences if d.stratum.by == "all"):
        if d.answered and d.answered.difference:
            of_both = format_estimate(d.answered.difference, signed=True)
            console.print(escape(f"{d.measure} over the {d.answered.n} questions that both answered: {of_both}"))
        if d.left_out:
            left_out.setdefault(", ".join(f"{n} {why}" for why, n in d.left_out.items()), []).append(d.measure)
    for reasons, measures in left_out.items():
        console.print(escape(f"left out of {', '.join(measures)}: {reasons}"))


def _print_graded(run: str, baseline: str, graded: Iterable[GradedDifference], console: Console) -> None:
    rows = []
    for d in graded:
        help_of = f"with {d.judge}" if d.judge else "grades alone"
        means = (format_estimate(mean) for mean in (d.baseline, d.other))
        difference, correlation = format_estimate(d.difference, signed=True), format_value(d.correlation, 2)
        judged = str(d.judged) if d.judge else ""
        rows.append((help_of, str(d.graded), judged, *means, difference, correlation if d.judge else ""))
    headings = ("mean grade", "graded", "judged", "baseline", "run", "difference", "r")
    draw_table(headings, rows, title=f"{run} against {baseline}, by a person's grades", console=console)


@options.command()
def report(
    folders: Runs,
    *,
    out: Annotated[Path, "The HTML file."],
    title: Annotated[str, "Title of the page. Default: the names of the runs."] = "",
    pairwise: Annotated[
        Path | None,
        "Output of typedrag research judges pairwise. Default: pairwise.json beside the first RUN, if it exists.",
    ] = None,
    seed: Seed = 0,
) -> None:
    """Write RUNs, finished or not, as one HTML page that needs no network.

    The page says in a sentence what each run is against the first, plots the differences, and shows the answers
    that differ most side by side. Measures by subset and type, coverage, preferences, costs, failures, all
    questions and the settings follow.
    """
    from typedrag.experiments.judges.pairwise import FILE, read_pairwise
    from typedrag.experiments.report import write_report

    runs = [read_run(folder) for folder in folders]
    beside = folders[0].resolve().parent / FILE
    preferred = read_pairwise(pairwise or beside) if pairwise or beside.is_file() else None
    write_report(runs, out, pairwise=preferred, title=title, seed=seed)
    say(f"{len(runs)} run{'s' * (len(runs) > 1)}: {out}")
