"""A compiled program as an agent of MLflow, for its playground, its evaluation and clients of OpenAI's Responses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import mlflow.pyfunc
from mlflow.types.responses import ResponsesAgentRequest, ResponsesAgentResponse, ResponsesAgentStreamEvent

from typedrag.core.errors import InputError
from typedrag.core.events import AnswerEnded, AnswerStarted, AnswerToken
from typedrag.experiments.tracking.served_model import EXAMPLE, InvalidQuestion, LoadedModel, describe, save_code
from typedrag.signatures.answering import Turn

if TYPE_CHECKING:
    from mlflow.models import Model

CODE = Path(__file__).with_name("served_agent_code.py")
_saving: ContextVar[bool] = ContextVar("saving", default=False)


class ServedAgent(LoadedModel, mlflow.pyfunc.ResponsesAgent):
    """Answers the last message of a conversation, whole or as a stream."""

    def predict(self, request: ResponsesAgentRequest) -> ResponsesAgentResponse:
        """Answer in one message; `custom_outputs` are the fields of a row of `ServedProgram` but the answer."""
        if _saving.get():
            return ResponsesAgentResponse(output=[])
        *_, last = self._stream(request, tokens=False)
        return ResponsesAgentResponse(output=[last.item], custom_outputs=last.custom_outputs)

    def predict_stream(self, request: ResponsesAgentRequest) -> Iterator[ResponsesAgentStreamEvent]:
        """Yield the answer's text while it is written, then the whole message, which counts where they differ."""
        yield from self._stream(request, tokens=True)

    def _stream(self, request: ResponsesAgentRequest, *, tokens: bool) -> Iterator[ResponsesAgentStreamEvent]:
        messages = self.prep_msgs_for_cc_llm(request.input)
        spoken = [(m["role"], _text(m.get("content"))) for m in messages if m.get("role") in ("user", "assistant")]
        *earlier, (_, question) = spoken or [("user", "")]
        turns = [Turn.model_validate({"speaker": role, "text": text}) for role, text in earlier if text.strip()]
        item = uuid4().hex
        with self.opened() as (program, redact), asyncio.Runner() as loop:
            events = program.stream(question, turns, tokens=tokens)
            try:
                while event := loop.run(anext(events, None)):
                    if isinstance(event, AnswerStarted):
                        item = uuid4().hex  # what was written before belongs to a draft
                    elif isinstance(event, AnswerToken):
                        yield ResponsesAgentStreamEvent(**self.create_text_delta(event.text, item))
                    elif isinstance(event, AnswerEnded):
                        yield ResponsesAgentStreamEvent(
                            type="response.output_item.done",
                            item=self.create_text_output_item(event.answer.marked, item),
                            custom_outputs=describe(event.answer, redact),
                        )
            except InputError as error:
                raise InvalidQuestion(redact(str(error))) from None
            finally:
                loop.run(events.aclose())


def save_agent(program: Path, out: Path, model: Model) -> None:
    """Save the folder of a compiled program to a new folder, as an agent of MLflow."""
    token = _saving.set(True)  # MLflow asks each agent that it saves a question, and no LM is to answer it
    try:
        example = {"input": [{"role": "user", "content": EXAMPLE[0]["question"]}]}
        save_code(CODE, program, out, model, input_example=example)
    finally:
        _saving.reset(token)


def _text(content: str | list[dict[str, Any]] | None) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())
