"""Runs as a self-contained HTML page, without network or other files."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import ceil
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from typedrag.core.errors import InputError
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Estimate, Step
from typedrag.experiments import formats
from typedrag.experiments.compare import (
    ALL,
    COSTS,
    Difference,
    RunComparison,
    Stratum,
    belongs,
    compare,
    conflicts_between,
    order_measures,
    run_labels,
    short_name,
    strata,
)
from typedrag.experiments.held_out import TRUTH
from typedrag.experiments.judges.pairwise import PairwiseComparison
from typedrag.experiments.results import METRIC, JudgeTally, MetricResult, QuestionResult, Run, Tally, higher_is_better
from typedrag.metrics.estimate import bootstrap_estimate
from typedrag.metrics.judges.linkage import Convention, chance_measures
from typedrag.metrics.sub_question_coverage import Judged, Scenario, scenarios
from typedrag.text.words import question_key

SUB_QUESTIONS = "sub_questions"  # the detail of a metric that lists sub-questions and their coverage
_LINKAGE = "linkage"
MRR, MPR = f"{_LINKAGE}/mrr", f"{_LINKAGE}/mpr"
_FILTERS: dict[str, Callable[..., Any]] = {
    "value": formats.format_value,
    "interval": formats.format_interval,
    "estimate": formats.format_estimate,
    "p": formats.format_p,
    "count": formats.format_count,
    "short_name": short_name,
    # Jinja's own groupby sorts
    "groupby_order": lambda rows, name: [(key, list(group)) for key, group in groupby(rows, attrgetter(name))],
    "percent": lambda share: formats.NONE if share is None else f"{share:.0%}",
    "percents": lambda e: f"[{e.low:.0%}, {e.high:.0%}]" if e.interval else e.size,
}


def write_report(
    runs: Sequence[Run], out: Path, *, pairwise: PairwiseComparison | None = None, title: str = "", seed: int = 0
) -> None:
    """Write the page of `render_report`; an `InputError` if there is no run, or the file cannot be written."""
    formats.write_page(render_report(runs, pairwise=pairwise, title=title, seed=seed), out)


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
    grids = {m: build_grid(runs, m, parts, seed) for m in (*measures, *COSTS)}
    ranked = next((m for m in (TRUTH, MRR, *measures) if m in grids), None)
    drawn = next((m for m in (TRUTH, MPR, ranked) if m in grids), None)
    conflicts = {labels[i]: conflicts_between(runs[0], run) for i, run in enumerate(runs)}
    # with their names on the page, which could be shorter if fewer runs were compared
    fitting = [replace(run, name=label) for run, label in zip(runs, labels, strict=True) if not conflicts[label]]
    comparison = compare(fitting, seed=seed) if len(fitting) > 1 else None
    differing, shared = list_settings(runs)
    script = (formats.REPORT / "report.js").read_text("utf-8")
    return formats.render_page(
        formats.REPORT,
        _FILTERS,
        title=title or f"typedrag: {', '.join(labels)}",
        runs=runs,
        labels=labels,
        questions=questions,
        answered=[sum(q.answer is not None for q in run.questions) for run in runs],
        settings=differing,
        shared_settings=shared,
        by_subset=grids[ranked].only(by_subset) if ranked else None,
        by_type=grids[drawn].only(by_type) if drawn else None,
        chart=chart_by_type(grids[drawn].only(by_type[1:])) if drawn and len(by_type) > 1 else None,
        grids=[grids[m] for m in measures],
        costs=[grids[m] for m in COSTS],
        coverage=(coverage := build_coverage(runs, seed)),
        answered_chart=chart_coverage(coverage, len(runs), "answered"),
        retrieved_chart=chart_coverage(coverage, len(runs), "retrieved"),
        win_rates=pairwise if pairwise and len(set(pairwise.runs) & set(labels)) > 1 else None,
        tallies={
            part.name: [Tally.of(q.answer for q in run.questions if belongs(q, part)) for run in runs]
            for part in by_type
        },
        judges=judge_tallies(runs),
        comparison=comparison,
        forest=build_forest(comparison) if comparison else None,
        conflicts={label: lines for label, lines in conflicts.items() if lines},
        details={**question_details(runs, labels), "measure": ranked},
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def question_details(runs: Sequence[Run], labels: Sequence[str]) -> dict[str, Any]:
    """The questions of all runs as JSON values, each with a result, or null, for each run.

    Answers name passages by their positions, since many answers share a passage.
    """
    passages: dict[tuple[str, str, str], int] = {}
    held = [{q.id: q for q in run.questions} for run in runs]
    values = {m: [run.values(m) for run in runs] for m in all_measures(runs)}
    questions = {i: q for by_id in reversed(held) for i, q in by_id.items()}
    order = dict.fromkeys(i for by_id in held for i in by_id)
    rows = [
        {
            "id": i,
            "question": questions[i].question,
            "type": str(questions[i].question_type or ""),
            "subset": questions[i].subset,
            "values": {m: [by_id.get(i) for by_id in by_run] for m, by_run in values.items()},
            "results": [_result(by_id[i], passages) if i in by_id else None for by_id in held],
        }
        for i in order
    ]
    return {
        "runs": list(labels),
        "measures": [{"name": m, "higher": higher_is_better(m)} for m in values],
        "passages": [{"id": id_, "title": title, "text": text} for id_, title, text in passages],
        "questions": rows,
    }


def all_measures(runs: Sequence[Run]) -> list[str]:
    """The measures of any of the runs, truthfulness first and costs last."""
    return order_measures(dict.fromkeys(m for run in runs for m in run.measures))


def sub_questions(result: MetricResult) -> list[dict[str, Any]]:
    listed = result.details.get(SUB_QUESTIONS, ())
    return [dict(one) for one in listed if isinstance(one, Mapping)]


def _result(question: QuestionResult, passages: dict[tuple[str, str, str], int]) -> dict[str, Any]:
    metrics = {
        name: {
            "score": result.score,
            "feedback": result.feedback,
            "measures": dict(result.measures),
            "problem": result.problem,
            "measurable": result.measurable,
            "subQuestions": sub_questions(result),
            "details": {n: v for n, v in result.details.items() if n != SUB_QUESTIONS},
        }
        for name, result in question.metrics.items()
    }
    if not (answer := question.answer):
        return {"error": question.error, "metrics": metrics}
    shown = {
        "text": answer.answer,
        "type": str(answer.question_type or ""),
        "fallback": answer.fallback,
        "answered": str(answer.answered),
        "grounded": answer.grounded,
        "passages": [passages.setdefault((p.id, p.title, p.text), len(passages)) for p in answer.passages],
        "citations": list(answer.citations),
        "steps": [_step(s) for s in answer.steps],
        "calls": answer.usage.lm_calls,
        "tokens": answer.usage.tokens,
        "seconds": round(answer.seconds, 2),
    }
    return {"error": question.error, "metrics": metrics, "answer": shown}


def _step(step: Step) -> dict[str, Any]:
    values = {
        "name": step.name,
        "input": step.input,
        "output": step.output,
        "passages": list(step.passage_ids),
        "dropped": list(step.dropped),
        "seconds": round(step.seconds, 2),
        "calls": step.usage.lm_calls,
        "tokens": step.usage.tokens,
        "steps": [_step(s) for s in step.steps],
    }
    return {name: value for name, value in values.items() if value}


class Row(NamedTuple):
    """A run's values in a grid: a cell for each column, None if it has no value. Its position gives its colour; the
    scorer is the LM behind the measure's judge, or empty."""

    run: int
    scorer: str
    cells: tuple[Estimate | None, ...]


@dataclass(frozen=True)
class Grid:
    """One measure of all runs, over parts of the questions; runs with the same scorer follow each other.

    `chance` is the value of a random ranking, for each column; empty if that is not known.
    """

    measure: str
    columns: tuple[Stratum, ...]
    rows: tuple[Row, ...]
    chance: tuple[float | None, ...] = ()

    @cached_property
    def best(self) -> tuple[float | None, ...]:
        columns = [{cell.value for row in self.rows if (cell := row.cells[i])} for i in range(len(self.columns))]
        choose = max if self.higher else min
        return tuple(choose(values) if len(values) > 1 else None for values in columns)  # not where all are equal

    @property
    def higher(self) -> bool:
        return higher_is_better(self.measure)

    @property
    def by_run(self) -> list[Row]:
        return sorted(self.rows)

    def only(self, parts: Sequence[Stratum]) -> Grid:
        places = [self.columns.index(part) for part in parts]
        rows = tuple(row._replace(cells=tuple(row.cells[i] for i in places)) for row in self.rows)
        return Grid(self.measure, tuple(parts), rows, tuple(self.chance[i] for i in places) if self.chance else ())


@dataclass(frozen=True)
class BarChart:
    """Bars with their intervals over an axis from `bottom` to `top`, which the template draws as SVG.

    A series is a run, with an estimate for each group, or None, which leaves a gap; `chance` is the chance level of
    each group, if known.
    """

    groups: Sequence[str]
    series: Sequence[Sequence[Estimate | None]]
    top: float
    chance: Sequence[float | None] = ()

    @cached_property
    def ticks(self) -> list[float]:
        lows = (e.value if e.low is None else e.low for estimates in self.series for e in estimates if e)
        below = max(0, ceil(-4 * min(lows, default=0.0) / self.top))
        return [self.top * i / 4 for i in range(-below, 5)]

    @property
    def bottom(self) -> float:
        return self.ticks[0]

    def height(self, value: float) -> float:
        """The height of a value above the axis' lower end, in units of the SVG.

        Example:
            >>> BarChart(["reason"], [[None]], top=100).height(50)
            138.0
            >>> BarChart(["reason"], [[Estimate(-1.0, -1.0, -1.0, 8)]], top=1).height(0)
            138.0
        """
        return 276 * min(max((value - self.bottom) / (self.top - self.bottom), 0.0), 1.0)


@dataclass(frozen=True)
class Forest:
    """A forest plot: the differences of runs from the baseline by one measure of each metric, on one axis, on which
    better is to the right."""

    rows: tuple[Difference, ...]

    @cached_property
    def reach(self) -> float:
        """The value at both ends of the axis."""
        ends = (end for d in self.rows if (e := d.difference) for end in (e.value, *(e.interval or ())))
        return max(map(abs, ends), default=0.0) or 1.0

    def place(self, row: Difference, value: float) -> float:
        """The place of a difference from the left, in percent."""
        return round(50 + 47 * value / self.reach * (1 if row.more_is_better else -1), 2)


class CoverageRow(NamedTuple):
    """The shares of a type's n sub-questions that a run's answers and passages cover, and of each combination of the
    two; without judged passages, `retrieved` is None and there are no scenarios."""

    run: int
    type: SubQuestionType
    n: int
    answered: Estimate | None
    retrieved: Estimate | None
    scenarios: Mapping[Scenario, float]


def build_forest(comparison: RunComparison) -> Forest | None:
    """The forest plot of a comparison; None if no metric has a value."""
    rows = [d for run in comparison.runs for d in comparison.headlines(run)]
    measures = [*dict.fromkeys(d.measure for d in rows)]
    return Forest(tuple(sorted(rows, key=lambda d: measures.index(d.measure)))) if rows else None


def build_grid(runs: Sequence[Run], measure: str, parts: Sequence[Stratum], seed: int) -> Grid:
    """A measure of all runs over parts of the questions, with 95 % intervals."""
    metric, rows = measure.partition("/")[0], []
    for i, run in enumerate(runs):
        cells = [{q.id for q in run.questions if belongs(q, part)} for part in parts]
        scorer = (run.settings.get(f"{METRIC}{metric}") or {}).get("scorer") or ""
        rows.append(Row(i, str(scorer), tuple(run.mean(measure, ids, seed) for ids in cells)))
    scorers = list(dict.fromkeys(row.scorer for row in rows))
    rows.sort(key=lambda row: scorers.index(row.scorer))
    chance: tuple[float | None, ...] = ()
    if levels := _chance_levels(runs, measure):
        by_part = [[level for q, level in levels if belongs(q, part)] for part in parts]
        chance = tuple(fmean(part) if part else None for part in by_part)
    return Grid(measure, tuple(parts), tuple(rows), chance)


def _chance_levels(runs: Sequence[Run], measure: str) -> list[tuple[QuestionResult, float]]:
    """The questions with a rank, and what a random ranking would give them on average."""
    by_question: dict[str, tuple[QuestionResult, float]] = {}
    for q in (q for run in runs if measure in (MRR, MPR) for q in run.questions):
        details = q.metrics[_LINKAGE].details if _LINKAGE in q.metrics else {}
        if labels := details.get("labels"):
            convention = Convention(details.get("convention", Convention.TYPED_RAG))
            by_question[q.id] = (q, chance_measures(len(labels), convention)[measure.partition("/")[2]])
    return list(by_question.values())


def chart_by_type(grid: Grid) -> BarChart:
    """Bars of a grid whose columns are question types (Typed-RAG, figure 4)."""
    series = [row.cells for row in grid.by_run]
    highest = max((c.value if c.high is None else c.high for cells in series for c in cells if c), default=1.0)
    top = 100.0 if grid.measure == MPR else max(1.0, highest)
    return BarChart([c.name for c in grid.columns], series, top, grid.chance)


def build_coverage(runs: Sequence[Run], seed: int) -> list[CoverageRow]:
    """Sub-question coverage of the runs that have it, by type; over all questions, of which whole ones are resampled.

    Without judged passages, `retrieved` is None.
    """

    def share(flags: Sequence[Sequence[bool]]) -> Estimate | None:
        hits, totals = [sum(f) for f in flags], [len(f) for f in flags]
        return bootstrap_estimate(lambda hit, total: float(hit.sum() / total.sum()), hits, totals, seed=seed)

    rows = []
    for i, run in enumerate(runs):
        by_question: dict[str, list[Judged]] = defaultdict(list)  # its answers may have several ids
        for question in run.questions:
            by_question[question_key(question.question)] += [
                Judged(SubQuestionType(s["type"]), s["answered"], tuple(s["retrieved"]), s["position"])
                for result in question.metrics.values()
                for s in sub_questions(result)
            ]
        pooled = [j for judged in by_question.values() for j in judged]
        retrieves = any(j.retrieved for j in pooled)
        for type_ in SubQuestionType if pooled else ():
            judged = [of_type for q in by_question.values() if (of_type := [j for j in q if j.type == type_])]
            answered = share([[j.answered for j in q] for q in judged])
            retrieved = share([[any(j.retrieved) for j in q] for q in judged]) if retrieves else None
            shares = scenarios(pooled, type_) if retrieves else None
            rows.append(CoverageRow(i, type_, sum(map(len, judged)), answered, retrieved, shares or {}))
    return rows


def chart_coverage(rows: Sequence[CoverageRow], runs: int, field: Literal["answered", "retrieved"]) -> BarChart | None:
    """Bars of the shares by type; a series for each run, also without coverage, so that colours agree with the other
    charts. None if there is no share."""
    shares = {(row.run, row.type): getattr(row, field) for row in rows}
    series = [[shares.get((run, type_)) for type_ in SubQuestionType] for run in range(runs)]
    return BarChart([type_.value for type_ in SubQuestionType], series, top=1.0) if any(shares.values()) else None


def judge_tallies(runs: Sequence[Run]) -> dict[str, list[JudgeTally | None]]:
    names = dict.fromkeys(name for run in runs for q in run.questions for name in q.metrics)
    by_metric = {n: [[q.metrics[n] for q in run.questions if n in q.metrics] for run in runs] for n in names}
    return {n: [JudgeTally.of(results) if results else None for results in of] for n, of in by_metric.items()}


def list_settings(runs: Sequence[Run]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The settings that differ, with a value of each run, and those that all runs share."""
    flat = [
        {n: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for n, v in pairs if v is not None}
        for pairs in (formats.flatten(run.settings) for run in runs)
    ]
    names = dict.fromkeys(n for f in flat for n in f)
    values = {name: [f.get(name, formats.NONE) for f in flat] for name in names}
    differing = {name: own for name, own in values.items() if len(set(own)) > 1}
    return differing, {name: own[0] for name, own in values.items() if name not in differing}
