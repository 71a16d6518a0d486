"""Errors of requests, as a status and a message that show a stranger no path, key or traceback."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from typedrag.core.errors import CallFailed, InputError, LMUnavailable, RetrievalError, StepFailed, Unavailable


@dataclass(frozen=True)
class Fault:
    """An error as a client sees it.

    Attributes:
        status: The HTTP status.
        code: A code for programs.
        message: A sentence for people.
        retry_after: Seconds after which to ask again; 0 if there is no point.
    """

    status: int
    code: str
    message: str
    retry_after: int = 0

    def to_dict(self, request_id: str) -> dict[str, Any]:
        """The body of the reply, in the shape of OpenAI's errors."""
        return {"error": {"message": self.message, "type": self.code, "code": self.code, "request_id": request_id}}


class Refused(Exception):
    """A request that the server itself refuses, with the fault that the client sees."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


INTERNAL = Fault(500, "internal_error", "The server failed at this; its log says more.")
DEADLINE = Fault(504, "deadline", "No answer was ready in time.")
STOPPING = Fault(503, "stopping", "The server is being stopped; ask another, or in a moment.", retry_after=5)
_OF_QUESTION = "the question "
"""The beginning of an `InputError` that the client caused; any other may name a file or an option of the server."""


def busy_error(seconds: float) -> Refused:
    """The refusal where too many questions wait already."""
    message = "Too many questions wait for an answer; ask again later."
    return Refused(Fault(429, "busy", message, max(1, round(seconds))))


def out_of_order_error(seconds: float = 5.0) -> Refused:
    """The refusal where the LM or the index is known to be out of order."""
    message = "The LM or the index cannot be used now; ask again later."
    return Refused(Fault(503, "unavailable", message, max(1, math.ceil(seconds))))


def to_fault(error: BaseException) -> Fault:
    """The fault that a client sees of an error while answering."""
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
