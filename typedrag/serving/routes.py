"""`/v1/answer`, `/v1/coverage`, `/v1/support` and `/v1/feedback`: answers, checks of them, and people's ratings."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Self, Union, get_type_hints

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, computed_field, create_model, model_validator
from typing_extensions import TypedDict

from typedrag.core.errors import RetrievalError, TypedRAGError
from typedrag.core.events import (
    AnswerEnded,
    AnswerStarted,
    AnswerToken,
    Classified,
    Event,
    Read,
    Searched,
    StepEnded,
    SubAnswered,
)
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer, Passage, Usage, total_usage
from typedrag.datasets.feedback import Feedback, FeedbackFile, Rating
from typedrag.files.text_files import WholeText
from typedrag.lms.asking import detect_refusals
from typedrag.lms.threads import run_in_thread
from typedrag.lms.trace import collect_steps, limit_calls
from typedrag.programs.coverage import CoreSubQuestions
from typedrag.serving.monitoring import request_line
from typedrag.serving.responses import (
    EVENTS,
    ErrorDetails,
    Fault,
    Refused,
    event_stream,
    server_sent,
    to_fault,
    unless_client_leaves,
)
from typedrag.serving.schema import ANSWERING, replies
from typedrag.serving.service import Service
from typedrag.sub_questions.coverage_judge import SentenceCoverageJudge, SimilarityCoverageJudge
from typedrag.text.sentences import supporting_sentences

logger = logging.getLogger(__name__)

router = APIRouter(prefix="/v1")


class FeedbackBody(BaseModel):
    """A rating of an answer, and perhaps a better one; or the question's type, if it was taken for another."""

    request_id: str = Field(max_length=200, description="X-Request-ID of the reply that had the answer.")
    rating: Rating | None = None
    correction: str = Field(default="", max_length=20_000, description="A better answer.")
    question_type: QuestionType | None = Field(default=None, description="The type that the question really has.")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.rating or self.question_type):
            raise ValueError("give a rating or a question_type")
        return self


@router.post("/feedback", tags=["feedback"], status_code=204, response_class=Response, responses={404: {}, 507: {}})
async def feedback(body: FeedbackBody, request: Request) -> None:
    """Keep feedback on an answer; a later rating or type by the same key replaces the earlier one."""
    file: FeedbackFile | None = request.app.state.feedback
    if file is None:
        raise Refused(Fault(404, "no_feedback", "This server keeps no feedback."))
    key = request_line().key
    who = key.name if key else ""
    entry = Feedback(body.request_id, body.rating, body.correction, who, body.question_type)
    try:
        known = await asyncio.to_thread(file.add, entry)
    except TypedRAGError as error:
        logger.warning("feedback is lost: %s", error)
        raise Refused(Fault(507, "not_kept", "The feedback could not be kept.")) from error
    if not known:
        raise Refused(Fault(404, "no_such_request", "No answer to this request is kept."))


async def keep(request: Request, answer: Answer) -> None:
    """Keep an answer if feedback is kept; if that fails, as on a full disk, the answer is sent all the same."""
    file: FeedbackFile | None = request.app.state.feedback
    if file is None:
        return
    try:
        await asyncio.to_thread(file.keep, request_line().request_id, answer)
    except TypedRAGError as error:
        logger.warning("an answer is not kept for feedback: %s", error)


async def keep_answer(request: Request, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Pass on events, and keep the answer among them."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, AnswerEnded):
                await keep(request, event.answer)
            yield event


AskedType = Annotated[
    QuestionType | None, Field(description="The question's type, if the asker says it; else the program finds it out.")
]


class Question(BaseModel):
    """A question to answer."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(min_length=1, examples=["Why does homemade bread turn out dense and heavy?"])
    program: str = Field(default="", description="A name of GET /v1/models; the first by default.")
    question_type: AskedType = None


class TypedQuestion(BaseModel):
    """A question of a batch, and its type."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(min_length=1)
    question_type: AskedType = None


class Batch(BaseModel):
    """Questions to answer at once."""

    model_config = ConfigDict(extra="forbid")

    questions: list[str | TypedQuestion] = Field(min_length=1)
    program: str = ""


class AnswerReply(Answer):
    """An answer, with all that is known about its making."""

    grounded = computed_field(Answer.grounded)


def _event_reply(kind: type[Event]) -> type[BaseModel]:
    """An event as it is sent."""
    types = {**get_type_hints(kind), "answer": AnswerReply}
    values: dict[str, Any] = {field.name: (types[field.name], ...) for field in fields(kind)}
    values["event"] = (Literal[kind.name], ...)
    return create_model(kind.__name__, __doc__=kind.__doc__, **values)


_EVENTS = (Classified, Searched, Read, StepEnded, SubAnswered, AnswerStarted, AnswerToken, AnswerEnded)


@router.post(
    "/answer",
    tags=["answers"],
    responses=replies(AnswerReply, *ANSWERING, events=Union[ErrorDetails, *map(_event_reply, _EVENTS)]),
)
async def answer(body: Question, request: Request, accept: Annotated[str, Header()] = "") -> Response:
    """Answer a question with all steps; with `Accept: text/event-stream`, send the events as they happen."""
    service: Service = request.app.state.service
    arguments = (body.question, body.program, (), body.question_type)
    if EVENTS in accept:
        return await event_stream(request, keep_answer(request, service.stream(*arguments)), server_sent)
    result = await unless_client_leaves(request, service.answer(*arguments))
    await keep(request, result)
    return JSONResponse(result.to_dict())


class BatchEntry(TypedDict):
    """An answer, or why there is none."""

    answer: AnswerReply | None
    error: ErrorDetails | None


class BatchReply(TypedDict):
    """The answers to the questions of a batch, in their order."""

    answers: list[BatchEntry]


@router.post("/answer/batch", tags=["answers"], responses=replies(BatchReply, *ANSWERING))
async def answer_batch(body: Batch, request: Request) -> Response:
    """Answer several questions at once: for each, in their order, its answer or its error."""
    service: Service = request.app.state.service
    if len(body.questions) > service.settings.batch:
        most = f"A batch has {service.settings.batch} questions at most."
        raise Refused(Fault(422, "batch_too_large", most))
    service.program(body.program)
    service.admission.count(len(body.questions) - 1)

    async def one(entry: str | TypedQuestion) -> Mapping[str, Any]:
        question, question_type = (entry, None) if isinstance(entry, str) else (entry.question, entry.question_type)
        try:
            answer = await service.answer(question, body.program, question_type=question_type)
            return {"answer": answer.to_dict(), "error": None}
        except Exception as error:
            return {"answer": None, "error": to_fault(error).to_dict()["error"]}

    everything = asyncio.gather(*(one(question) for question in body.questions))
    return JSONResponse({"answers": await unless_client_leaves(request, everything)})


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


class CoverageReply(TypedDict):
    """The sub-questions of a question, which of them an answer covers, and what it took to find out."""

    sub_questions: tuple[CoveredSubQuestion, ...]
    usage: Usage


@router.post("/coverage", tags=["answers"], responses=replies(CoverageReply, *ANSWERING))
async def coverage(body: AnswerToJudge, request: Request) -> CoverageReply:
    """Judge which sub-questions an answer covers; the LM writes and types them, which costs as much as an answer."""
    service: Service = request.app.state.service
    loaded, line = service.program(body.program), request_line()
    line.program = loaded.name
    line.questions.append(body.question)

    def judge() -> CoverageJudged:
        with detect_refusals(), limit_calls(loaded.program.max_lm_calls), collect_steps() as steps:
            typed = CoreSubQuestions(loaded.program.options).typed(body.question)
            texts = [sub_question.text for sub_question in typed]
            try:
                verdicts = SimilarityCoverageJudge()(text=body.answer, sub_questions=texts).verdicts
            except RetrievalError:  # the model for the similarity of meaning is not on this machine
                verdicts = SentenceCoverageJudge()(text=body.answer, sub_questions=texts).verdicts
        judged = [
            CoveredSubQuestion(q.text, str(q.type), v.answered, v.fragment)
            for q, v in zip(typed, verdicts, strict=True)
        ]
        return CoverageJudged(sub_questions=tuple(judged), usage=total_usage(steps))

    async def source() -> AsyncGenerator[Event, None]:
        yield await run_in_thread(judge)

    async def ask() -> CoverageReply:
        [judged] = [event async for event in service.share(loaded, ("coverage", body.question, body.answer), source)]
        assert isinstance(judged, CoverageJudged)
        return {"sub_questions": judged.sub_questions, "usage": judged.usage}

    return await unless_client_leaves(request, ask())


_MOST_COMPARED = 65_536
_LONGEST_SENTENCE = 1_000  # characters of a passage's sentence that are sent: one may be all of the passage


class CitedPassage(BaseModel):
    """A passage that an answer cites."""

    id: WholeText
    text: WholeText


class CitedAnswer(BaseModel):
    """An answer, and the passages that it cites."""

    question: WholeText
    answer: str = Field(max_length=20_000)
    passages: list[CitedPassage] = Field(max_length=100)

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if sum(len(passage.text) for passage in self.passages) > _MOST_COMPARED:
            raise ValueError(f"the passages have {_MOST_COMPARED:,} characters at most, together")
        return self


class SupportedSentence(BaseModel):
    """A sentence of the answer, and the sentence of a passage that says the same."""

    sentence: str
    passage_id: str
    passage_sentence: str


class Supported(BaseModel):
    """The supported sentences of an answer, in their order."""

    support: list[SupportedSentence]


@router.post("/support", tags=["answers"], responses=replies(Supported, 503, 504))
async def support(body: CitedAnswer, request: Request) -> Supported:
    """Find the passage's sentence that supports each sentence of an answer, by shared words, without an LM call."""
    service: Service = request.app.state.service
    passages = [Passage(p.id, p.text) for p in body.passages]

    def support() -> list[SupportedSentence]:
        pairs = supporting_sentences(body.answer, passages, body.question)
        return [
            SupportedSentence(sentence=s, passage_id=id_, passage_sentence=p[:_LONGEST_SENTENCE]) for s, id_, p in pairs
        ]

    return Supported(support=await service.search(support, in_python=True))
