"""Runs as a self-contained HTML page, without network or other files."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from typedrag.core.errors import InputError
from typedrag.experiments import formats
from typedrag.experiments.compare import ALL, COSTS, belongs, compare, conflicts_between, run_labels, strata
from typedrag.experiments.formats import REPORT, render_page, write_page
from typedrag.experiments.judges.pairwise import PairwiseComparison
from typedrag.experiments.report_tables import (
    MPR,
    MRR,
    all_measures,
    build_coverage,
    build_grid,
    chart_by_type,
    judge_tallies,
    list_settings,
    only_columns,
    question_details,
)
from typedrag.experiments.results import Run, Tally

_FILTERS: dict[str, Callable[..., Any]] = {
    "value": formats.format_value,
    "interval": formats.format_interval,
    "estimate": formats.format_estimate,
    "p": formats.format_p,
    "count": formats.format_count,
    # Jinja's own groupby sorts
    "groupby_order": lambda rows, name: [(key, list(group)) for key, group in groupby(rows, attrgetter(name))],
    "percent": lambda share: formats.NONE if share is None else f"{share:.0%}",
    "percents": lambda e: f"[{e.low:.0%}, {e.high:.0%}]" if e.interval else e.size,
}


def write_report(
    runs: Sequence[Run], out: Path, *, pairwise: PairwiseComparison | None = None, title: str = "", seed: int = 0
) -> None:
    """Write the page of `render_report`; an `InputError` if there is no run, or the file cannot be written."""
    write_page(render_report(runs, pairwise=pairwise, title=title, seed=seed), out)


def render_report(
    runs: Sequence[Run], *, pairwise: PairwiseComparison | None = None, title: str = "", seed: int = 0
) -> str:
    """The page of runs as HTML.

    Runs with other data or judges than the first one are not compared with it: the page shows their numbers and the
    reason. All texts of runs are escaped, since strangers may have written them, and the page's policy allows only its
    own script.
    """
    if not runs:
        raise InputError("there is no run to report on", "Name one or more")
    labels = run_labels(runs)
    questions = list({q.id: q for run in reversed(runs) for q in run.questions}.values())
    measures = [m for m in all_measures(runs) if m not in COSTS]
    by_type, by_subset = ([ALL, *(s for s in strata(questions, [by]) if s.by == by)] for by in ("type", "subset"))
    parts = [*by_type, *by_subset[1:]]
    grids = {m: build_grid(runs, labels, m, parts, seed) for m in (*measures, *COSTS)}
    ranked = MRR if MRR in grids else next(iter(measures), None)
    drawn = MPR if MPR in grids else ranked
    conflicts = {labels[i]: conflicts_between(runs[0], run) for i, run in enumerate(runs)}
    # with their names on the page, which could be shorter if fewer runs were compared
    fitting = [replace(run, name=label) for run, label in zip(runs, labels, strict=True) if not conflicts[label]]
    script = (REPORT / "report.js").read_text("utf-8")
    return render_page(
        REPORT,
        _FILTERS,
        title=title or f"typedrag: {', '.join(labels)}",
        runs=runs,
        labels=labels,
        questions=questions,
        answered=[sum(q.answer is not None for q in run.questions) for run in runs],
        settings=list_settings(runs),
        by_subset=only_columns(grids[ranked], by_subset) if ranked else None,
        by_type=only_columns(grids[drawn], by_type) if drawn else None,
        chart=chart_by_type(only_columns(grids[drawn], by_type[1:])) if drawn and len(by_type) > 1 else None,
        grids=[grids[m] for m in measures],
        costs=[grids[m] for m in COSTS],
        coverage=build_coverage(runs, labels, seed),
        win_rates=pairwise if pairwise and len(set(pairwise.runs) & set(labels)) > 1 else None,
        tallies={
            part.name: [Tally.of(q.answer for q in run.questions if belongs(q, part)) for run in runs]
            for part in by_type
        },
        judges=judge_tallies(runs),
        comparison=compare(fitting, seed=seed) if len(fitting) > 1 else None,
        conflicts={label: lines for label, lines in conflicts.items() if lines},
        details={**question_details(runs, labels), "measure": ranked},
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
