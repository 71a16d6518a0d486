"""Runs of evaluations in their folders: how questions, answers and judgments are kept, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer
from typedrag.experiments.evaluate.results import MetricResult, PlannedQuestion, QuestionResult, Run
from typedrag.lms.cost import Spending
from typedrag.runs.folder import FILE, read_folder
from typedrag.runs.store import Contents, Result

KIND = "evaluation"
METRIC = "metric "
"""The prefix of settings that may be added when a run is continued: further metrics."""
ANSWERS, AGAIN = "answers", "made again"
"""The step that answers a question; the other steps are metrics. And the name of spending on what was made again."""
SpendingRecords = list[tuple[str, Spending]]
"""What was spent on each answer and each judgment, with what it was: `ANSWERS` or the name of the metric; and on those
that were made again, in one."""


def read_run(folder: Path) -> Run:
    """Read the run in a folder, finished or still in the making."""
    return run_of(read_folder(folder), folder)


def read_records(folder: Path) -> tuple[Mapping[str, Any], SpendingRecords]:
    """The settings of the run in a folder, and what was spent on each answer and each judgment, in all tries."""
    contents = read_folder(folder)
    records = [(result.step, result.spent) for result in contents.results]
    return contents.identity, records + ([(AGAIN, contents.forgotten)] if contents.forgotten.usage.lm_calls else [])


def spent_below(folder: Path) -> Spending:
    """The spending on all runs in a folder and below it, in all tries."""
    return sum((read_folder(file.parent).spent for file in folder.rglob(FILE)), Spending())


def items_of(questions: Sequence[PlannedQuestion]) -> dict[str, Any]:
    """Questions as the items of a run."""
    return {q.id: {name: value for name, value in asdict(q).items() if name != "id"} for q in questions}


def value_of(result: MetricResult) -> dict[str, Any] | None:
    """A metric's result as a JSON value; None if there is no score."""
    if result.score is None:
        return None
    fields = {"score": result.score, "feedback": result.feedback}
    return {**fields, "measures": dict(result.measures), "details": dict(result.details)}


def run_of(contents: Contents, folder: Path) -> Run:
    """The run that a folder's contents are of."""
    answers: dict[str, Result] = {}
    metrics: dict[str, dict[str, MetricResult]] = {}
    for result in contents.results:
        if result.step == ANSWERS:
            answers[result.item] = result
        else:
            metrics.setdefault(result.item, {})[result.step] = MetricResult(
                **(result.value or {"score": None}),
                problem=result.problem,
                measurable=not result.skipped,
                usage=result.spent.usage,
            )
    return Run(
        name=contents.notes.get("name") or folder.resolve().name,
        path=folder,
        settings={**contents.notes, **contents.identity},
        questions=tuple(
            QuestionResult(
                id_,
                item["question"],
                QuestionType(item["question_type"]) if item["question_type"] else None,
                item["subset"],
                Answer.from_dict(answer.value) if answer.value else None,
                answer.problem,
                metrics.get(id_, {}),
            )
            for id_, item in contents.items.items()
            if (answer := answers.get(id_))
        ),
        planned=len(contents.items),
        spent=contents.spent,
    )
