"""The numbers of runs, drawn as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from typedrag.experiments.evaluate.summary import GroupSummary, RunSummary


def draw_run(summary: RunSummary, console: Console) -> None:
    """Print a run's measures, overall and by question type."""
    groups = {"all": summary.overall, **summary.types}
    if len(summary.types) < 2:
        groups.pop(next(iter(summary.types), ""), None)
    _draw(f"{summary.name}, by question type", groups, console)
    if len(summary.subsets) > 1:
        _draw(f"{summary.name}, by subset", {"all": summary.overall, **summary.subsets}, console)


def draw_comparison(summaries: Sequence[RunSummary], console: Console) -> None:
    """Print the overall measures of several runs beside each other."""
    _draw("all runs", {s.name: s.overall for s in summaries}, console)


def _draw(title: str, groups: Mapping[str, GroupSummary], console: Console) -> None:
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE)
    table.add_column("")
    for name in groups:
        table.add_column(escape(name), justify="right")
    rows = {name: _cells(group) for name, group in groups.items()}
    for row in dict.fromkeys(row for cells in rows.values() for row in cells):
        table.add_row(escape(row), *(cells.get(row, "") for cells in rows.values()))
    console.print(table)


def _cells(group: GroupSummary) -> dict[str, str]:
    cells = {
        "questions": str(group.questions),
        "answers failed": str(group.failed),
        "fallbacks": str(group.fallbacks),
        "not answered": group.share(group.not_answered),
        "from the LM's knowledge": group.share(group.knowledge),
        "grounded": group.share(group.grounded),
    }
    cells |= {f"{name} an answer": f"{mean:,.1f}" for name, mean in group.cost.items()}
    for name, metric in group.metrics.items():
        cells[f"{name}: scored"] = str(metric.n)
        cells[f"{name}: failed"] = str(metric.failed)
        if metric.not_measurable:
            cells[f"{name}: not measurable"] = str(metric.not_measurable)
        cells |= {f"{name}/{measure}": f"{value:.3f}" for measure, value in metric.measures.items()}
    return cells
