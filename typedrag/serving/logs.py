"""One line of JSON for each request: who asked, how it went and what it took; questions' text only where wanted."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from typedrag.events import AnswerEnded, Event
from typedrag.records import Answer
from typedrag.serving.faults import fault_of

logger = logging.getLogger("typedrag.requests")


@dataclass
class RequestLine:
    """What the log says of a request; of a batch, all of it together.

    Attributes:
        id: By which the log, the reply's header and errors name it.
        method: Of HTTP.
        path: The template of its path; empty if there is none such, as the path itself is a stranger's text.
        status: Of the reply; 0 if there was none.
        seconds: From its head to the end of its reply.
        key: The name of the key that it came with.
        program: That answered.
        types: Of the questions.
        lm_calls: Made for the answers; where other requests shared one, their lines count them as well.
        tokens: Of these calls.
        fallback: Whether a step of an answer failed.
        error: The code of what went wrong.
        questions: That it asked.
    """

    id: str = ""
    method: str = ""
    path: str = ""
    status: int = 0
    seconds: float = 0.0
    key: str = ""
    program: str = ""
    types: list[str] = field(default_factory=list)
    lm_calls: int = 0
    tokens: int = 0
    fallback: bool = False
    error: str = ""
    questions: list[str] = field(default_factory=list)

    def answered(self, answer: Answer) -> None:
        """Take in what an answer took."""
        self.types.extend(kind for kind in (answer.question_type,) if kind and kind not in self.types)
        self.lm_calls += answer.usage.lm_calls
        self.tokens += answer.usage.tokens or 0
        self.fallback = self.fallback or bool(answer.fallback)

    def write(self, *, with_questions: bool) -> None:
        """Log it."""
        said: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request_id": self.id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": round(self.seconds, 4),
            "key": self.key,
            "program": self.program,
            "type": ",".join(self.types),
            "lm_calls": self.lm_calls,
            "tokens": self.tokens,
            "fallback": self.fallback,
            "error": self.error,
        }
        if with_questions:
            said["questions"] = self.questions
        logger.info(json.dumps(said))  # escapes what would end the line or steer a terminal


_line: ContextVar[RequestLine | None] = ContextVar("line", default=None)
set_line = _line.set


def request_line() -> RequestLine:
    """That of the request under way; one that nobody writes where there is none."""
    return _line.get() or RequestLine()


async def noted(events: AsyncGenerator[Event, None], program: str, question: str) -> AsyncGenerator[Event, None]:
    """The events of a question, which the line of its request takes in."""
    line = request_line()
    line.program = program
    line.questions.append(question)
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, AnswerEnded):
                    line.answered(event.answer)
                yield event
    except Exception as error:
        line.error = fault_of(error).code
        raise


def log_requests() -> None:
    """Let the lines go to stderr, with nothing before them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
