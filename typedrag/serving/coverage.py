"""Coverage of sub-questions by an answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial

from typedrag.errors import RetrievalError
from typedrag.events import Event
from typedrag.lms.asking import detect_refusals
from typedrag.lms.threads import run_in_thread
from typedrag.lms.trace import collect_steps, limit_calls
from typedrag.programs import Program
from typedrag.programs.coverage.core_sub_questions import CoreSubQuestions
from typedrag.records import Usage, total_usage
from typedrag.sub_questions.coverage_judge import Coverage, SentenceCoverageJudge, SimilarityCoverageJudge


@dataclass(frozen=True, slots=True)
class CoveredSubQuestion:
    """A sub-question, and whether an answer covers it.

    Attributes:
        text: The sub-question.
        type: Core, background or follow-up.
        covered: Whether the answer covers it.
        fragment: The words of the answer that cover it; empty if it does not.
    """

    text: str
    type: str
    covered: bool
    fragment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageJudged(Event):
    """The event that the coverage of an answer has been judged."""

    name = "coverage"
    sub_questions: tuple[CoveredSubQuestion, ...]
    usage: Usage


async def judged_coverage(program: Program, question: str, answer: str) -> AsyncGenerator[Event, None]:
    """Yield one event with the sub-questions that the LM writes and types, and which of them an answer covers.

    Raises:
        StepFailed: If no sub-question can be read from the LM's replies.
        LMUnavailable: If the LM cannot be used.
    """
    yield await run_in_thread(partial(_judge, program, question, answer))


def _judge(program: Program, question: str, answer: str) -> CoverageJudged:
    with detect_refusals(), limit_calls(program.max_lm_calls), collect_steps() as steps:
        typed = CoreSubQuestions(program.options).typed(question)
        verdicts = _verdicts(answer, [q.text for q in typed])
    judged = zip(typed, verdicts, strict=True)
    return CoverageJudged(
        sub_questions=tuple(CoveredSubQuestion(q.text, str(q.type), v.answered, v.fragment) for q, v in judged),
        usage=total_usage(steps),
    )


def _verdicts(answer: str, sub_questions: list[str]) -> list[Coverage]:
    """The verdicts by similarity of meaning, or by the LM if the model for that is not on this machine."""
    try:
        verdicts: list[Coverage] = SimilarityCoverageJudge()(text=answer, sub_questions=sub_questions).verdicts
    except RetrievalError:
        verdicts = SentenceCoverageJudge()(text=answer, sub_questions=sub_questions).verdicts
    return verdicts
