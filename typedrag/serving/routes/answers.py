"""`/v1/answer`: the answer to a question, or its events; `/v1/answer/batch`: the answers to several."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from typedrag.core.question_types import QuestionType
from typedrag.serving.errors import Fault, Refused, to_fault
from typedrag.serving.logs import request_line
from typedrag.serving.responses import EVENTS, event_stream, server_sent, unless_client_leaves
from typedrag.serving.routes.feedback import keep, keep_answer
from typedrag.serving.service import Service

router = APIRouter(prefix="/v1", tags=["answers"])

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


@router.post("/answer", responses={200: {"content": {EVENTS: {}}}})
async def answer(body: Question, request: Request, accept: Annotated[str, Header()] = "") -> Response:
    """Answer a question with all steps; with `Accept: text/event-stream`, send the events as they happen."""
    service: Service = request.app.state.service
    arguments = (body.question, body.program, (), body.question_type)
    if EVENTS in accept:
        return await event_stream(request, keep_answer(request, service.stream(*arguments)), server_sent)
    result = await unless_client_leaves(request, service.answer(*arguments))
    await keep(request, result)
    return JSONResponse(result.to_dict())


@router.post("/answer/batch")
async def answer_batch(body: Batch, request: Request) -> Response:
    """Answer several questions at once: for each, in their order, its answer or its error."""
    service: Service = request.app.state.service
    if len(body.questions) > service.settings.batch:
        most = f"A batch has {service.settings.batch} questions at most."
        raise Refused(Fault(422, "batch_too_large", most))
    service.program(body.program)

    async def one(entry: str | TypedQuestion) -> dict[str, Any]:
        question, question_type = (entry, None) if isinstance(entry, str) else (entry.question, entry.question_type)
        try:
            answer = await service.answer(question, body.program, question_type=question_type)
            return {"answer": answer.to_dict(), "error": None}
        except Exception as error:
            return {"answer": None, "error": to_fault(error).to_dict(request_line().id)["error"]}

    everything = asyncio.gather(*(one(question) for question in body.questions))
    return JSONResponse({"answers": await unless_client_leaves(request, everything)})
