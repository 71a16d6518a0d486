"""`/v1/feedback`: people's ratings and corrections of answers, which a dataset can be built from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Self

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, model_validator

from typedrag.core.errors import TypedRAGError
from typedrag.core.events import AnswerEnded, Event
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer
from typedrag.datasets.feedback import Feedback, FeedbackFile, Rating
from typedrag.serving.errors import Fault, Refused

logger = logging.getLogger(__name__)

router = APIRouter(prefix="/v1", tags=["feedback"])

OFF = Fault(404, "no_feedback", "This server keeps no feedback.")
UNKNOWN = Fault(404, "no_such_request", "No answer to this request is kept.")
LOST = Fault(507, "not_kept", "The feedback could not be kept.")


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


@router.post("/feedback", status_code=204, response_class=Response)
async def feedback(body: FeedbackBody, request: Request) -> None:
    """Keep feedback on an answer; a later rating or type by the same key replaces the earlier one."""
    file: FeedbackFile | None = request.app.state.feedback
    if file is None:
        raise Refused(OFF)
    who = getattr(request.state, "key", "")
    entry = Feedback(body.request_id, body.rating, body.correction, who, body.question_type)
    try:
        known = await asyncio.to_thread(file.add, entry)
    except TypedRAGError as error:
        logger.warning("feedback is lost: %s", error)
        raise Refused(LOST) from error
    if not known:
        raise Refused(UNKNOWN)


async def keep(request: Request, answer: Answer) -> None:
    """Keep an answer if feedback is kept; if that fails, as on a full disk, the answer is sent all the same."""
    file: FeedbackFile | None = request.app.state.feedback
    if file is None:
        return
    try:
        await asyncio.to_thread(file.keep, request.state.id, answer)
    except TypedRAGError as error:
        logger.warning("an answer is not kept for feedback: %s", error)


async def keep_answer(request: Request, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Pass on events, and keep the answer among them."""
    async with aclosing(events):
        async for event in events:
            if isinstance(event, AnswerEnded):
                await keep(request, event.answer)
            yield event
