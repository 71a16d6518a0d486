"""Replies read while they are written, and calls that end when nobody waits for them any more.

Only followed questions use them; see `typedrag.core.events`. Their calls are made in one event loop of the
process, whose thread receives each piece: the thread that waits for the whole reply can give up at any time.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import dspy
from dspy.lm15 import Request, Response
from pydantic_core import from_json

from typedrag.core.call_context import call_context, use_context
from typedrag.core.events import AnswerStarted, AnswerToken, emit
from typedrag.core.redaction import Redactor, lm_keys
from typedrag.lms.adapter import without_thoughts
from typedrag.lms.threads import stop_if_cancelled, wait_for
from typedrag.text.words import printable

_TELL_EVERY = 0.05
_ANSWER = "answer"
_MARKER = "[[ ##"


def stream_answer(predictor: dspy.Module) -> AbstractContextManager[None]:
    """Emit the answer's text within, if the predictor asks for the answer to the question and not to a part of it."""
    signature = getattr(predictor, "signature", None)
    context = call_context()
    streams = context.listener is not None and context.tokens_wanted and not context.part
    return use_context(writes_answer=streams and signature is not None and _ANSWER in signature.output_fields)


def await_reply(lm: dspy.LM, request: Request) -> Response:
    """The reply to a request; its pieces are emitted as events if it holds the answer."""

    async def ask() -> Response:
        if not call_context().writes_answer:
            return await lm.acall(request)
        text = AnswerText(dspy.settings.lm)
        with dspy.context(send_stream=_Pieces(text)):
            reply = await lm.acall(request)
        text.tell()
        return reply

    return wait_for(asyncio.run_coroutine_threadsafe(ask(), _loop(os.getpid())))


class _Pieces:
    """The stream that DSPy sends the pieces of a reply to."""

    def __init__(self, text: AnswerText) -> None:
        self._text = text

    async def send(self, piece: Any) -> None:
        """Receive a piece, from DSPy's own client or LiteLLM's."""
        stop_if_cancelled()
        for choice in piece.choices:
            self._text.add(getattr(choice.delta, "content", None) or "")


class AnswerText:
    """Emits the text of the field `answer` while a reply is written: JSON, or fields behind DSPy's markers.

    Nothing is emitted if the LM says that the passages hold no answer, and never what may be the beginning of a key.

    Args:
        lm: The LM whose keys are hidden.
        emit: Called with an event and its values.
        every: Seconds between two events: reading a reply at each of its tokens would cost more than anything else.
    """

    def __init__(self, lm: dspy.LM | None, emit: Callable[..., None] = emit, every: float = _TELL_EVERY) -> None:
        self._hide = Redactor(lm_keys(lm))
        self._emit = emit
        self._every = every
        self._reply = ""
        self._told = ""
        self._last = 0.0

    def add(self, piece: str) -> None:
        """Add a piece of the reply, and emit the new text if enough time has passed."""
        self._reply += piece
        if time.monotonic() >= self._last + self._every:
            self.tell()

    def tell(self) -> None:
        """Emit the text that has come since the last event."""
        self._last = time.monotonic()
        text = self._hide(printable(_answer_in(without_thoughts(self._reply)))).strip()
        text = text[: max(0, len(text) - self._hide.longest)]
        if self._told.startswith(text):
            return
        if not self._told or not text.startswith(self._told):
            self._told = ""
            self._emit(AnswerStarted)
        self._emit(AnswerToken, text=text[len(self._told) :])
        self._told = text


def _answer_in(reply: str) -> str:
    """The answer as far as it is written; empty if the LM has said that there is none."""
    if _MARKER in reply:
        answered = _behind(reply, "answered").strip().casefold()
        return "" if answered.startswith("false") else _behind(reply, _ANSWER).partition("[[")[0].rstrip("[")
    try:
        fields = from_json(reply[max(reply.find("{"), 0) :], allow_partial="trailing-strings")
    except ValueError:
        return ""
    answer = fields.get(_ANSWER) if isinstance(fields, dict) and fields.get("answered") is not False else None
    return answer if isinstance(answer, str) else ""


def _behind(reply: str, field: str) -> str:
    return reply.partition(f"{_MARKER} {field} ## ]]")[2]


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:  # its thread does not come along to a process that is forked
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="typedrag-calls", daemon=True).start()
    return loop
