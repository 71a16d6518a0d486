"""The details of each question and its answers in several runs, for the report's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from typedrag.core.records import Answer, Step
from typedrag.experiments.compare.compare import COSTS
from typedrag.experiments.evaluate.results import MetricResult, QuestionResult, Run, higher_is_better

SUB_QUESTIONS = "sub_questions"
"""The detail of a metric that lists sub-questions and their coverage."""


_Passages: TypeAlias = dict[tuple[str, str, str], int]
"""The positions of the passages met so far, by id, title and text."""


def question_details(runs: Sequence[Run], labels: Sequence[str]) -> dict[str, Any]:
    """The questions of all runs as JSON values, each with a result, or null, for each run.

    Answers name passages by their positions, since many answers share a passage.
    """
    passages: _Passages = {}
    held = [{q.id: q for q in run.questions} for run in runs]
    values = {m: [run.values(m) for run in runs] for m in measures_of(runs)}
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


def measures_of(runs: Sequence[Run]) -> list[str]:
    """The measures of any of the runs, costs last."""
    return [*dict.fromkeys(m for run in runs for m in run.measures), *COSTS]


def sub_questions(result: MetricResult) -> list[dict[str, Any]]:
    """The sub-questions in a result of sub-question coverage; none for other metrics."""
    listed = result.details.get(SUB_QUESTIONS, ())
    return [dict(one) for one in listed if isinstance(one, Mapping)]


def _result(question: QuestionResult, passages: _Passages) -> dict[str, Any]:
    result: dict[str, Any] = {"error": question.error, "metrics": {n: _metric(r) for n, r in question.metrics.items()}}
    if question.answer:
        result["answer"] = _answer(question.answer, passages)
    return result


def _answer(answer: Answer, passages: _Passages) -> dict[str, Any]:
    usage = answer.usage
    return {
        "text": answer.answer,
        "type": str(answer.question_type or ""),
        "fallback": answer.fallback,
        "answered": str(answer.answered),
        "grounded": answer.grounded,
        "passages": [passages.setdefault((p.id, p.title, p.text), len(passages)) for p in answer.passages],
        "citations": list(answer.citations),
        "steps": [_step(s) for s in answer.steps],
        "calls": usage.lm_calls,
        "tokens": usage.tokens,
        "seconds": round(answer.seconds, 2),
    }


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


def _metric(result: MetricResult) -> dict[str, Any]:
    return {
        "score": result.score,
        "feedback": result.feedback,
        "measures": dict(result.measures),
        "problem": result.problem,
        "measurable": result.measurable,
        "subQuestions": sub_questions(result),
        "details": {n: v for n, v in result.details.items() if n != SUB_QUESTIONS},
    }
