"""Log runs of evaluations to MLflow: their settings, results and answers with all steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from typedrag.experiments.evaluate.results import QuestionResult, Run, Tally
from typedrag.experiments.evaluate.summary import GroupSummary, RunSummary
from typedrag.experiments.tracking.tracker import Tracker

NOTE = "mlflow run"


def begin_run(
    tracker: Tracker, run: Run, note: Callable[[str, str], None], tags: Mapping[str, str] | None = None
) -> None:
    """Begin MLflow's run, or resume the one that the run's note names; `note` makes that note. See `Tracker.begin`."""
    settings = {name: value for name, value in run.settings.items() if name != NOTE}
    tracker.begin(run.name, settings, run.settings.get(NOTE), partial(note, NOTE), tags=tags)


def log_run(
    tracker: Tracker, run: Run, summary: RunSummary, stopped: str, tags: Mapping[str, str] | None = None
) -> None:
    """Log the results of a run; `stopped` is empty if it is finished."""
    if not tracker.id:
        return
    with tracker.attempt(f"run '{run.name}'", "Nothing is lost: log it with --resume"):
        tracker.log(_metrics_of(summary))
        answers = [{"id": q.id, **q.answer.to_dict()} for q in run.questions if q.answer]
        tracker.artifact("traces.jsonl", "".join(json.dumps(a, ensure_ascii=False) + "\n" for a in answers))
        tracker.artifact("results.json", json.dumps(summary.to_dict(), ensure_ascii=False, indent=1))
        tracker.table("questions.json", [_row(question) for question in run.questions])
        tracker.tag(tags or {})
        tracker.end(stopped=bool(stopped))


def _metrics_of(summary: RunSummary) -> dict[str, float]:
    """The metrics of a run, such as `linkage/mrr` overall and `linkage/mrr/reason` by type."""
    values = dict(_group_metrics(summary.overall, ""))
    for name, group in summary.types.items():
        values |= dict(_group_metrics(group, f"/{name}"))
    return values | summary.spent.metrics


def _group_metrics(group: GroupSummary, suffix: str) -> Iterator[tuple[str, float]]:
    yield from ((f"answers/{f.name}{suffix}", float(getattr(group, f.name))) for f in fields(Tally))
    yield from ((f"cost/{name}{suffix}", mean) for name, mean in group.cost.items())
    for name, metric in group.metrics.items():
        counts = {"n": metric.n, "failed": metric.failed, "not_measurable": metric.not_measurable}
        for measure, value in {**metric.measures, **counts}.items():
            yield f"{name}/{measure}{suffix}", float(value)


def _row(question: QuestionResult) -> dict[str, Any]:
    answer = question.answer
    row: dict[str, Any] = {
        "id": question.id,
        "question": question.question,
        "question_type": str(question.question_type or ""),
        "subset": question.subset,
        "answer": answer.answer if answer else None,
        "error": question.error,
        "fallback": answer.fallback if answer else "",
        "answered": str(answer.answered) if answer else "",
        "grounded": answer.grounded if answer else None,
        "lm_calls": answer.usage.lm_calls if answer else None,
        "seconds": answer.seconds if answer else None,
    }
    for name, result in question.metrics.items():
        row |= {f"{name}/{measure}": value for measure, value in result.measures.items()}
        row |= {f"{name}/score": result.score, f"{name}/feedback": result.feedback, f"{name}/problem": result.problem}
    return row
