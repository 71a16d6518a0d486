"""What judges of sub-questions say, or once said."""

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
    """What a judge says, or once said, of a text; see `AnyCoverageJudge`."""
    inputs = {"text": text, "sub_questions": list(sub_questions)}
    made = judgments.get_or_make(
        judge,
        {**inputs, **judge.settings},
        lambda: {"verdicts": [asdict(v) for v in judge(**inputs).verdicts]},
    )
    return [Coverage(**verdict) for verdict in made["verdicts"]]


def stored_types(
    typer: SubQuestionTyper, judgments: Judgments, question: str, sub_questions: Sequence[str]
) -> list[SubQuestionType]:
    """What a typer says, or once said, of sub-questions; see `SubQuestionTyper.forward`."""
    inputs = {"question": question, "sub_questions": list(sub_questions)}
    per_call = typer.sub_questions_per_call
    # what was stored before this was part of the key was typed so many at once
    together = {} if per_call == SUB_QUESTIONS_PER_CALL else {"sub_questions_per_call": per_call}
    made = judgments.get_or_make(
        typer, {**inputs, **together}, lambda: {"types": [str(t) for t in typer(**inputs).types]}
    )
    return [SubQuestionType(t) for t in made["types"]]
