"""Replies that all paths share: errors, streams of events, and the end of work whose client has left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, StreamingResponse

from typedrag.core.events import Event
from typedrag.serving.errors import Fault, Refused, to_fault
from typedrag.serving.logs import request_line

T = TypeVar("T")

EVENTS = "text/event-stream"
_PING_SECONDS = 15.0

Render = Callable[[Event | Fault], str]
"""Renders an event, or the fault that ends a stream, as the text to send."""


def error_response(request: Request, fault: Fault, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The reply of a fault, which is also counted and logged."""
    request.app.state.service.metrics.count_refusal(fault)
    line = request_line()
    line.error = fault.code
    wait = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
    return JSONResponse(fault.to_dict(line.id), fault.status, {**(headers or {}), **wait})


async def unless_client_leaves(request: Request, work: Awaitable[T]) -> T:
    """The result of work, which is cancelled if the client closes the connection first."""

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, leaving = asyncio.ensure_future(work), asyncio.ensure_future(leave())
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Refused(Fault(499, "client_left", "The client has closed the connection."))
        return await task
    finally:
        leaving.cancel()
        task.cancel()


def server_sent(event: Event | Fault) -> str:
    """An event as a server-sent event: its name, and its values as JSON."""
    if isinstance(event, Fault):
        return f"event: error\ndata: {json.dumps(event.to_dict(request_line().id)['error'])}\n\n"
    values = event.to_dict()
    return f"event: {values['event']}\ndata: {json.dumps(values, ensure_ascii=False)}\n\n"


async def event_stream(request: Request, events: AsyncGenerator[Event, None], render: Render) -> StreamingResponse:
    """A reply that streams events as they happen."""
    first = await unless_client_leaves(request, anext(events))  # once the reply has begun, Starlette watches
    news: asyncio.Queue[Event | Fault | None] = asyncio.Queue()

    async def listen() -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    news.put_nowait(event)
        except Exception as error:
            news.put_nowait(to_fault(error))
        news.put_nowait(None)

    async def pieces() -> AsyncIterator[str]:
        listening = asyncio.ensure_future(listen())  # it also closes the events: the client may leave
        try:
            yield render(first)
            while True:
                try:
                    async with asyncio.timeout(_PING_SECONDS):
                        piece = await news.get()
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
