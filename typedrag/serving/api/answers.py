"""`/v1/answer`: the answer to a question, or its events; `/v1/answer/batch`: the answers to several."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from typedrag.events import Event
from typedrag.question_types import QuestionType
from typedrag.serving.api.feedback import keep, keeping
from typedrag.serving.faults import Fault, Refused, fault_of
from typedrag.serving.logs import request_line
from typedrag.serving.service import Service

router = APIRouter(prefix="/v1", tags=["answers"])

EVENTS = "text/event-stream"
_PING_SECONDS = 15.0

AskedType = Annotated[
    QuestionType | None, Field(description="The question's type, if the asker says it; else the program finds it out.")
]

Render = Callable[[Event | Fault], str]
"""A function that renders an event, or the fault that ends a stream, as the text to send."""


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
        return await event_stream(request, keeping(request, service.stream(*arguments)), server_sent)
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
            return {"answer": None, "error": fault_of(error).to_dict(request_line().id)["error"]}

    everything = asyncio.gather(*(one(question) for question in body.questions))
    return JSONResponse({"answers": await unless_client_leaves(request, everything)})


async def unless_client_leaves(request: Request, awaitable: Any) -> Any:
    """The result of an awaitable, which is cancelled if the client closes the connection first."""
    task = asyncio.ensure_future(awaitable)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            raise Refused(Fault(499, "client_left", "The client has closed the connection."))
        return await task
    finally:
        leaving.cancel()
        task.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def server_sent(event: Event | Fault) -> str:
    """An event as a server-sent event: its name, and its values as JSON."""
    if isinstance(event, Fault):
        return f"event: error\ndata: {json.dumps(event.to_dict(request_line().id)['error'])}\n\n"
    values = event.to_dict()
    return f"event: {values['event']}\ndata: {json.dumps(values, ensure_ascii=False)}\n\n"


async def event_stream(request: Request, events: AsyncGenerator[Event, None], render: Render) -> StreamingResponse:
    """A reply that streams events as they happen.

    Raises:
        Refused: If the client leaves before the first event.
        Exception: The error that comes before the first event, so that it gets its own reply.
    """
    first = await unless_client_leaves(request, anext(events))  # once the reply has begun, Starlette watches
    news: asyncio.Queue[Event | Fault | None] = asyncio.Queue()

    async def listen() -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    news.put_nowait(event)
        except Exception as error:
            news.put_nowait(fault_of(error))
        news.put_nowait(None)

    async def pieces() -> AsyncIterator[str]:
        listening = asyncio.ensure_future(listen())  # it also closes the events: the client may leave
        try:
            yield render(first)
            while True:
                try:
                    piece = await asyncio.wait_for(news.get(), _PING_SECONDS)
                except TimeoutError:
                    yield ": still at it\n\n"
                    continue
                if piece is None:
                    return
                yield render(piece)
        finally:
            listening.cancel()

    return StreamingResponse(
        pieces(), media_type=EVENTS, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
