"""Replies that all paths share: errors that show a stranger no path, key or traceback, and streams of events."""

import asyncio
import json
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Literal, TypeVar
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import JSONResponse, StreamingResponse
from typing_extensions import TypedDict

from typedrag.core.errors import CallFailed, InputError, LMUnavailable, RetrievalError, StepFailed, Unavailable
from typedrag.core.events import Event
from typedrag.serving.monitoring import request_line


class ErrorDetails(TypedDict):
    """An error: a sentence for people, a code for programs, and the field that is wrong, if any."""

    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None
    code: str
    request_id: str


class ErrorReply(TypedDict):
    """An error in OpenAI's shape."""

    error: ErrorDetails


@dataclass(frozen=True)
class Fault:
    """An error as a client sees it: a code for programs and a sentence for people.

    `retry_after` is the seconds after which to ask again; 0 if there is no point. `param` is the field that is wrong.
    """

    status: int
    code: str
    message: str
    retry_after: int = 0
    param: str = ""

    def to_dict(self) -> ErrorReply:
        """The error of the current request in OpenAI's shape."""
        limited = self.status == 429
        return {
            "error": {
                "message": self.message,
                "type": "server_error" if self.status >= 500 else "rate_limit_error" if limited else _INVALID,
                "param": self.param or None,
                "code": self.code,
                "request_id": request_line().request_id,
            }
        }


class Refused(Exception):
    """A request that the server itself refuses, with the fault that the client sees."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


INTERNAL = Fault(500, "internal_error", "The server failed at this; its log says more.")
DEADLINE = Fault(504, "deadline", "No answer was ready in time.")
CLIENT_LEFT = Fault(499, "client_left", "The client has closed the connection.")
STOPPING = Fault(503, "stopping", "The server is being stopped; ask another, or in a moment.", retry_after=5)
_INVALID: Literal["invalid_request_error"] = "invalid_request_error"
UNSUPPORTED = "unsupported"  # the code of what is refused because it cannot be done
OPENAI_PATHS = ("/v1/chat/completions", "/v1/responses")  # whose clients know 400, and not 422
# the beginning of an `InputError` that the client caused; any other may name a file or an option of the server
_OF_QUESTION = "the question "


def busy_error(seconds: float) -> Refused:
    message = "Too many questions wait for an answer; ask again later."
    return Refused(Fault(429, "busy", message, max(1, round(seconds))))


def out_of_order_error(seconds: float = 5.0) -> Refused:
    message = "The LM or the index cannot be used now; ask again later."
    return Refused(Fault(503, "unavailable", message, max(1, math.ceil(seconds))))


def to_fault(error: BaseException) -> Fault:
    match error:
        case Refused(fault=fault):
            return fault
        case InputError() if error.problem.startswith(_OF_QUESTION):
            return Fault(422, "invalid_question", f"{error.problem[:1].upper()}{error.problem[1:]}.")
        case TimeoutError():
            return DEADLINE
        case CallFailed():
            return Fault(503, "lm_failed", "The LM failed at this question; ask again later.", retry_after=5)
        case LMUnavailable():
            return Fault(503, "lm_unavailable", "The LM cannot be used now; ask again later.", retry_after=10)
        case RetrievalError():
            return Fault(503, "index_unavailable", "The index cannot be used now; ask again later.", retry_after=10)
        case Unavailable():
            return out_of_order_error().fault
        case StepFailed():
            return Fault(502, "no_answer", "No answer could be read from what the LM replied.", retry_after=1)
    return INTERNAL


def passage_url(passage_id: str) -> str:
    """The address of a passage whose id is one, else a name of it."""
    known = passage_id.startswith(("http://", "https://"))
    return passage_id if known else f"urn:typedrag:passage:{quote(passage_id, safe='')}"


T = TypeVar("T")

EVENTS = "text/event-stream"
_PING_SECONDS = 10.0

Render = Callable[[Event | Fault], str]  # an event, or the fault that ends a stream, as the text to send


def error_response(request: Request, fault: Fault, headers: Mapping[str, str] | None = None) -> JSONResponse:
    if fault.status == 422 and request.url.path in OPENAI_PATHS:
        fault = replace(fault, status=400)
    request_line().fault = fault
    again: dict[str, str] = {}
    if fault.retry_after:  # spread, so that those who were refused together do not come back together
        again = {"Retry-After": str(fault.retry_after + random.randint(0, max(2, fault.retry_after // 2)))}
    elif fault is DEADLINE:  # OpenAI's clients would ask a question again that takes too long
        again = {"X-Should-Retry": "false"}
    return JSONResponse(fault.to_dict(), fault.status, {**(headers or {}), **again})


async def unless_client_leaves(request: Request, work: Awaitable[T]) -> T:
    """The result of work, which is cancelled if the client closes the connection first."""

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, leaving = asyncio.ensure_future(work), asyncio.ensure_future(leave())
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Refused(CLIENT_LEFT)
        return await task
    finally:
        leaving.cancel()
        task.cancel()


def server_sent(event: Event | Fault) -> str:
    if isinstance(event, Fault):
        return f"event: error\ndata: {json.dumps(event.to_dict()['error'])}\n\n"
    values = event.to_dict()
    return f"event: {values['event']}\ndata: {json.dumps(values, ensure_ascii=False)}\n\n"


async def event_stream(request: Request, events: AsyncGenerator[Event, None], render: Render) -> StreamingResponse:
    """A reply that streams events as they happen, and comments while none does. An error that comes before both is
    raised."""
    news: asyncio.Queue[Event | Exception | None] = asyncio.Queue()

    async def listen() -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    news.put_nowait(event)
        except Exception as error:
            news.put_nowait(error)
        news.put_nowait(None)

    async def render_all() -> AsyncGenerator[str, None]:
        listening = asyncio.ensure_future(listen())  # it also closes the events: the client may leave
        begun = False
        try:
            while True:
                try:
                    async with asyncio.timeout(_PING_SECONDS):
                        event = await news.get()
                except TimeoutError:
                    begun = True
                    yield ": still at it\n\n"
                    continue
                if event is None:
                    return
                if isinstance(event, Exception) and not begun:
                    raise event
                begun = True
                yield render(to_fault(event) if isinstance(event, Exception) else event)
        finally:
            listening.cancel()

    pieces = render_all()
    first = await unless_client_leaves(request, anext(pieces))  # once the reply has begun, Starlette watches

    async def begun_pieces() -> AsyncIterator[str]:
        async with aclosing(pieces):
            yield first
            async for piece in pieces:
                yield piece

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(begun_pieces(), media_type=EVENTS, headers=headers)
