"""`/v1/coverage` and `/v1/support`: which sub-questions an answer covers, and which sentences support it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from typedrag.core.errors import RetrievalError
from typedrag.core.events import Event
from typedrag.core.records import Passage, Usage, total_usage
from typedrag.files.text_files import WholeText
from typedrag.lms.asking import detect_refusals
from typedrag.lms.threads import run_in_thread
from typedrag.lms.trace import collect_steps, limit_calls
from typedrag.programs import Program
from typedrag.programs.coverage import CoreSubQuestions
from typedrag.serving.responses import unless_client_leaves
from typedrag.serving.service import Service
from typedrag.sub_questions.coverage_judge import SentenceCoverageJudge, SimilarityCoverageJudge
from typedrag.text.sentences import supporting_sentences

router = APIRouter(prefix="/v1", tags=["answers"])

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class AnswerToJudge(BaseModel):
    """A question and an answer to it."""

    model_config = ConfigDict(extra="forbid")

    question: Annotated[_Text, Field(max_length=4000, examples=["Why does homemade bread turn out dense and heavy?"])]
    answer: Annotated[_Text, Field(max_length=20_000)]
    program: str = Field(default="", description="A name of GET /v1/models, whose LM is asked; the first by default.")


@dataclass(frozen=True, slots=True)
class CoveredSubQuestion:
    """A sub-question, whether an answer covers it, and the words of the answer that do; empty if it does not."""

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


@router.post("/coverage")
async def coverage(body: AnswerToJudge, request: Request) -> Response:
    """Judge which sub-questions an answer covers; the LM writes and types them, which costs as much as an answer."""
    service: Service = request.app.state.service
    loaded = service.program(body.program)

    async def source() -> AsyncGenerator[Event, None]:
        yield await run_in_thread(partial(_judge_coverage, loaded.program, body.question, body.answer))

    async def judge() -> dict[str, Any]:
        events = service.share(loaded, ("coverage", body.question, body.answer), source)
        [judged] = [event async for event in events]
        assert isinstance(judged, CoverageJudged)
        return {"sub_questions": [asdict(one) for one in judged.sub_questions], "usage": asdict(judged.usage)}

    return JSONResponse(await unless_client_leaves(request, judge()))


def _judge_coverage(program: Program, question: str, answer: str) -> CoverageJudged:
    """The sub-questions that the LM writes and types, and which of them an answer covers: by similarity of meaning, or
    by the LM if the model for that is not on this machine.
    """
    with detect_refusals(), limit_calls(program.max_lm_calls), collect_steps() as steps:
        typed = CoreSubQuestions(program.options).typed(question)
        texts = [sub_question.text for sub_question in typed]
        try:
            verdicts = SimilarityCoverageJudge()(text=answer, sub_questions=texts).verdicts
        except RetrievalError:
            verdicts = SentenceCoverageJudge()(text=answer, sub_questions=texts).verdicts
    judged = zip(typed, verdicts, strict=True)
    return CoverageJudged(
        sub_questions=tuple(CoveredSubQuestion(q.text, str(q.type), v.answered, v.fragment) for q, v in judged),
        usage=total_usage(steps),
    )


class CitedPassage(BaseModel):
    """A passage that an answer cites."""

    id: WholeText
    text: WholeText


class CitedAnswer(BaseModel):
    """An answer, and the passages that it cites."""

    question: WholeText
    answer: str = Field(max_length=20_000)
    passages: list[CitedPassage] = Field(max_length=100)


class SupportedSentence(BaseModel):
    """A sentence of the answer, and the sentence of a passage that says the same."""

    sentence: str
    passage_id: str
    passage_sentence: str


class Supported(BaseModel):
    """The supported sentences of an answer, in their order."""

    support: list[SupportedSentence]


@router.post("/support")
def support(body: CitedAnswer) -> Supported:
    """Find the passage's sentence that supports each sentence of an answer, by shared words, without an LM call."""
    passages = [Passage(p.id, p.text) for p in body.passages]
    sentences = supporting_sentences(body.answer, passages, body.question)
    return Supported(support=[SupportedSentence(**one._asdict()) for one in sentences])
