"""The log: a line of JSON for each request with key, outcome and cost; texts of questions only if asked for."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from typedrag.core.call_context import call_context
from typedrag.core.records import Answer

logger = logging.getLogger("typedrag.requests")


@dataclass
class RequestLine:
    """The log's line of a request; a batch has one line.

    Attributes:
        id: The id of the request in the log, the reply's header and errors.
        method: The HTTP method.
        path: The template of its path; empty if it has none, since the path itself is a stranger's text.
        status: The status of the reply; 0 if there was none.
        seconds: The time from its head to the end of its reply.
        key: The name of its key.
        program: The program that answered.
        types: The types of the questions.
        lm_calls: The LM calls for the answers; requests that share an answer all count its calls.
        tokens: The tokens of these calls.
        fallback: Whether a step of an answer failed.
        error: The code of the error, if any.
        questions: The questions it asked.
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

    def add_answer(self, answer: Answer) -> None:
        """Add the type and the cost of an answer."""
        self.types.extend(kind for kind in (answer.question_type,) if kind and kind not in self.types)
        self.lm_calls += answer.usage.lm_calls
        self.tokens += answer.usage.tokens or 0
        self.fallback = self.fallback or bool(answer.fallback)

    def write(self, *, with_questions: bool) -> None:
        """Write the line to the log."""
        values: dict[str, Any] = {
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
            values["questions"] = self.questions
        logger.info(json.dumps(values))  # JSON escapes line ends and control characters


def request_line() -> RequestLine:
    """The line of the current request; outside a request, one that is never written."""
    return call_context().request or RequestLine()


def log_requests() -> None:
    """Write the lines to stderr, without a prefix."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
