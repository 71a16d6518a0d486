"""The numbers of runs, drawn as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typedrag.cli.tables import draw_table
from typedrag.experiments.evaluate.summary import GroupSummary, RunSummary


def draw_run(summary: RunSummary) -> None:
    """Print a run's measures, overall and by question type."""
    groups = {"all": summary.overall, **summary.types}
    if len(summary.types) < 2:
        groups.pop(next(iter(summary.types), ""), None)
    _draw(f"{summary.name}, by question type", groups)
    if len(summary.subsets) > 1:
        _draw(f"{summary.name}, by subset", {"all": summary.overall, **summary.subsets})


def draw_comparison(summaries: Sequence[RunSummary]) -> None:
    """Print the overall measures of several runs beside each other."""
    _draw("all runs", {s.name: s.overall for s in summaries})


def _draw(title: str, groups: Mapping[str, GroupSummary]) -> None:
    columns = [_cells(group) for group in groups.values()]
    names = dict.fromkeys(name for cells in columns for name in cells)
    draw_table(["", *groups], ([name, *(cells.get(name, "") for cells in columns)] for name in names), title=title)


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
