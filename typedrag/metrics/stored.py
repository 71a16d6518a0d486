"""Stored judgments of sub-questions, made if there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from typedrag.metrics.judges.judgments import Judgments
from typedrag.question_types import SubQuestionType
from typedrag.sub_questions.coverage_judge import AnyCoverageJudge, Coverage
from typedrag.sub_questions.decomposition import SUB_QUESTIONS_PER_CALL, SubQuestionTyper


def stored_verdicts(
    judge: AnyCoverageJudge, judgments: Judgments, text: str, sub_questions: Sequence[str]
) -> list[Coverage]:
    """The verdicts on a text, stored or new; see `AnyCoverageJudge`."""
    inputs = {"text": text, "sub_questions": list(sub_questions)}
    judgment = judgments.get_or_make(
        judge,
        {**inputs, **judge.settings},
        lambda: {"verdicts": [asdict(v) for v in judge(**inputs).verdicts]},
    )
    return [Coverage(**verdict) for verdict in judgment["verdicts"]]


def stored_types(
    typer: SubQuestionTyper, judgments: Judgments, question: str, sub_questions: Sequence[str]
) -> list[SubQuestionType]:
    """The types of sub-questions, stored or new; see `SubQuestionTyper.forward`."""
    inputs = {"question": question, "sub_questions": list(sub_questions)}
    per_call = typer.sub_questions_per_call
    # the default is left out of the key, as in judgments stored before the key had it
    together = {} if per_call == SUB_QUESTIONS_PER_CALL else {"sub_questions_per_call": per_call}
    judgment = judgments.get_or_make(
        typer, {**inputs, **together}, lambda: {"types": [str(t) for t in typer(**inputs).types]}
    )
    return [SubQuestionType(t) for t in judgment["types"]]
