"""`/v1/responses`: answers in the shape of OpenAI's Responses."""

import json
import uuid
from itertools import count
from typing import Annotated, Any, Literal, NotRequired

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field, field_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from typedrag.core.records import Answer
from typedrag.serving.openai import (
    MOST_MESSAGES,
    AboutAnswer,
    Citation,
    Message,
    ModelRequest,
    Shape,
    TextFormat,
    answer_chat,
    cut_off,
    refuse,
)
from typedrag.serving.responses import UNSUPPORTED, ErrorDetails, Fault
from typedrag.serving.schema import ANSWERING, replies

_NOT_KEPT = "Responses are not kept: send the earlier messages as `input`"
_OWN_INSTRUCTIONS = "Only the server sets instructions; leave them out"


class InputMessage(Message):
    """A message of the user or the assistant."""

    type: Literal["message"] = "message"

    @field_validator("role")
    @classmethod
    def _check_role(cls, role: str) -> str:
        if role in ("system", "developer"):
            raise PydanticCustomError(UNSUPPORTED, _OWN_INSTRUCTIONS)
        return role


class TextSettings(BaseModel):
    """Settings of the text."""

    format: TextFormat | None = None


def _as_messages(value: object) -> object:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class ResponseRequest(ModelRequest):
    """A question, or a chat whose last message of the user is the question. What can't be done is refused; how an LM
    writes, such as `temperature`, is the server's, and ignored."""

    input: Annotated[
        list[InputMessage],
        BeforeValidator(_as_messages, json_schema_input_type=str | list[InputMessage]),
        Field(min_length=1, max_length=MOST_MESSAGES, examples=["Why does homemade bread turn out dense and heavy?"]),
    ]
    metadata: dict[str, str] | None = Field(default=None, description="It is repeated in the reply.")
    text: TextSettings | None = None
    instructions: Annotated[None, refuse(_OWN_INSTRUCTIONS)] = None
    previous_response_id: Annotated[None, refuse(_NOT_KEPT)] = None
    conversation: Annotated[None, refuse(_NOT_KEPT)] = None
    prompt: Annotated[None, refuse("There are no kept prompts: send the text as `input`")] = None
    tools: Annotated[None, refuse("No tool is ever called; leave them out")] = None
    background: Annotated[None, refuse("The reply has the answer; nothing is answered later")] = None


MessageStatus = Literal["in_progress", "completed", "incomplete"]


class Source(Citation):
    """A source of a sentence."""

    type: Literal["url_citation"]


class OutputText(TypedDict):
    """The text of an answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[Source]
    logprobs: list[None]


class OutputMessage(TypedDict):
    """The message that answers."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: MessageStatus
    content: list[OutputText]


class ResponseUsage(TypedDict):
    """The tokens of all LM calls of a question; what of them was cached or reasoning is not known, and 0."""

    input_tokens: int
    input_tokens_details: dict[Literal["cached_tokens", "cache_write_tokens"], int]
    output_tokens: int
    output_tokens_details: dict[Literal["reasoning_tokens"], int]
    total_tokens: int


class ResponseError(TypedDict):
    """The error that left no answer."""

    code: Literal["server_error", "invalid_prompt"]
    message: str


class IncompleteDetails(TypedDict):
    """The reason of an incomplete answer: the LM's reply was cut off."""

    reason: Literal["max_output_tokens"]


class ResponseObject(TypedDict):
    """An answer in the shape of Responses. What the program and the server decide is null, or says that it is off."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[OutputMessage]
    usage: ResponseUsage | None
    metadata: dict[str, str]
    instructions: None
    max_output_tokens: None
    parallel_tool_calls: Literal[False]
    previous_response_id: None
    store: Literal[False]
    temperature: None
    text: dict[Literal["format"], dict[Literal["type"], Literal["text"]]]
    tool_choice: Literal["none"]
    tools: list[None]
    top_p: None
    truncation: Literal["disabled"]
    typedrag: NotRequired[AboutAnswer]


class ResponseEvent(TypedDict):
    """An event of a stream; each has the fields that OpenAI's has. One of type `error` follows `response.failed`."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.annotation.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "error",
    ]
    sequence_number: int
    response: NotRequired[ResponseObject]
    output_index: NotRequired[int]
    item: NotRequired[OutputMessage]
    item_id: NotRequired[str]
    content_index: NotRequired[int]
    part: NotRequired[OutputText]
    delta: NotRequired[str]
    text: NotRequired[str]
    logprobs: NotRequired[list[None]]
    annotation: NotRequired[Source]
    annotation_index: NotRequired[int]
    code: NotRequired[str]
    message: NotRequired[str]
    param: NotRequired[str | None]
    error: NotRequired[ErrorDetails]


class ResponseShape(Shape):
    """Responses; each part of a stream has events with numbers in sequence."""

    def __init__(self, request: Request, body: ResponseRequest) -> None:
        super().__init__(request, body)
        self._item_id, self._numbers = f"msg_{uuid.uuid4().hex}", count()
        self._response: ResponseObject = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": self.created,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": [],
            "usage": None,
            "metadata": body.metadata or {},
            "instructions": None,
            "max_output_tokens": None,
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
        }

    def render(self, answer: Answer) -> ResponseObject:
        status: MessageStatus = "incomplete" if cut_off(answer) else "completed"
        sources: list[Source] = [{"type": "url_citation", **citation} for citation in self.cite(answer)]
        read, written = answer.usage.prompt_tokens, answer.usage.completion_tokens
        return {
            **self._response,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if cut_off(answer) else None,
            "output": [self._message(status, [_text(self.text(answer), sources)])],
            "usage": {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": written,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": read + written,
            },
            "typedrag": self.describe(answer),
        }

    def open(self) -> str:
        return (
            self._event("response.created", response=self._response)
            + self._event("response.in_progress", response=self._response)
            + self._event("response.output_item.added", output_index=0, item=self._message("in_progress", []))
            + self._text_event("content_part.added", part=_text("", []))
        )

    def append(self, piece: str) -> str:
        return self._text_event("output_text.delta", delta=piece, logprobs=[])

    def close(self, answer: Answer) -> str:
        response = self.render(answer)
        [message] = response["output"]
        [text] = message["content"]
        parts = [
            self._text_event("output_text.annotation.added", annotation_index=place, annotation=source)
            for place, source in enumerate(text["annotations"])
        ]
        return (
            "".join(parts)
            + self._text_event("output_text.done", text=text["text"], logprobs=[])
            + self._text_event("content_part.done", part=text)
            + self._event("response.output_item.done", output_index=0, item=message)
            + self._event(f"response.{response['status']}", response=response)
        )

    def fail(self, fault: Fault) -> str:
        error = fault.to_dict()["error"]
        code = "server_error" if fault.status >= 500 else "invalid_prompt"
        failed = {**self._response, "status": "failed", "error": {"code": code, "message": fault.message}}
        named = {name: error[name] for name in ("code", "message", "param")}
        # some clients read the first, and some the second
        return self._event("response.failed", response=failed) + self._event("error", **named, error=error)

    def _message(self, status: MessageStatus, content: list[OutputText]) -> OutputMessage:
        return {"id": self._item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _text_event(self, kind: str, **values: Any) -> str:
        place = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        return self._event(f"response.{kind}", **place, **values)

    def _event(self, kind: str, **values: Any) -> str:
        event = {"type": kind, "sequence_number": next(self._numbers), **values}
        return f"event: {kind}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"


def _text(text: str, sources: list[Source]) -> OutputText:
    return {"type": "output_text", "text": text, "annotations": sources, "logprobs": []}


router = APIRouter(prefix="/v1", tags=["openai"])


@router.post("/responses", responses=replies(ResponseObject, *ANSWERING, events=ResponseEvent))
async def responses(body: ResponseRequest, request: Request) -> Response:
    """Answer a question in the shape of OpenAI's Responses, which are not kept; with `stream`, in events."""
    return await answer_chat(request, body, "input", list(body.input), ResponseShape(request, body))
