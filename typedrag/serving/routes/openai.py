"""`/v1/chat/completions` and `/v1/models` in the shapes of OpenAI, for its chat clients and libraries."""

from __future__ import annotations

from typing import Self

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field, model_validator

from typedrag.files.text_files import WholeText, whole
from typedrag.serving.errors import Fault, Refused
from typedrag.serving.programs import LoadedProgram
from typedrag.serving.responses import EVENTS, event_stream, unless_client_leaves
from typedrag.serving.routes.answers import AskedType
from typedrag.serving.routes.completions import Chunks, Reply, without_drafts
from typedrag.serving.routes.feedback import keep, keep_answer
from typedrag.serving.service import Service
from typedrag.signatures.answering import Turn

router = APIRouter(prefix="/v1", tags=["openai"])

_SPEAKERS = ("user", "assistant")


class Part(BaseModel):
    """A part of a message; only parts of type `text` are read."""

    type: str
    text: str = ""


class Message(BaseModel):
    """A message of a chat; only the roles `user` and `assistant` are read."""

    role: str
    content: str | list[Part] | None = None

    @model_validator(mode="after")
    def _check_text(self) -> Self:
        whole(self.text)
        return self

    @property
    def text(self) -> str:
        """The text of the message."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type == "text")
        return self.content or ""


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool | None = False


class ChatRequest(BaseModel):
    """A chat; the user's last message is the question. Unknown fields are ignored."""

    model: WholeText = Field(default="", description="A name of GET /v1/models; the first by default.")
    messages: list[Message] = Field(
        min_length=1, examples=[[{"role": "user", "content": "Why does homemade bread turn out dense and heavy?"}]]
    )
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, description="There is one answer; more cannot be asked for.")
    question_type: AskedType = None


@router.post("/chat/completions", responses={200: {"content": {EVENTS: {}}}})
async def chat_completions(body: ChatRequest, request: Request) -> Response:
    """Answer the last question of a chat, in the shape of OpenAI's chat completions; with `stream`, in chunks."""
    service: Service = request.app.state.service
    if (body.n or 1) > 1:
        raise Refused(Fault(422, "unsupported", "n: There is one answer to a question; leave n out."))
    reply = Reply(_find_program(service, body.model).name)
    question, turns = conversation(body.messages)
    arguments = (question, reply.model, turns, body.question_type)
    if body.stream:
        usage = bool(body.stream_options and body.stream_options.include_usage)
        events = keep_answer(request, service.stream(*arguments))
        return await event_stream(request, events, Chunks(reply, usage=usage))
    answer = await unless_client_leaves(request, service.answer(*arguments))
    await keep(request, answer)
    return JSONResponse(reply.completion(answer))


@router.get("/models")
async def models(request: Request) -> JSONResponse:
    """The programs that are served, the default one first."""
    service: Service = request.app.state.service
    return JSONResponse({"object": "list", "data": [_model(loaded) for loaded in service.programs.values()]})


@router.get("/models/{model}")
async def model(model: str, request: Request) -> JSONResponse:
    """A program that is served."""
    return JSONResponse(_model(_find_program(request.app.state.service, model)))


def conversation(messages: list[Message]) -> tuple[str, tuple[Turn, ...]]:
    """The question, which is the user's last message, and the turns before it."""
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    if not places:
        raise Refused(Fault(422, "invalid_request", "messages: There is no message of the user."))
    last = messages[places[-1]]
    if isinstance(last.content, list) and any(part.type != "text" for part in last.content):
        raise Refused(Fault(422, "unsupported", "messages: Only text can be read of the last message."))
    earlier = [(m.role, without_drafts(m.text).strip()) for m in messages[: places[-1]] if m.role in _SPEAKERS]
    return last.text, tuple(Turn.model_validate({"speaker": role, "text": text}) for role, text in earlier if text)


def _find_program(service: Service, name: str) -> LoadedProgram:
    if name and name not in service.programs:
        message = f"The model `{name[:100]}` does not exist; GET /v1/models lists those that do."
        raise Refused(Fault(404, "model_not_found", message))
    return service.program(name)


def _model(loaded: LoadedProgram) -> dict[str, str | int]:
    return {"id": loaded.name, "object": "model", "created": int(loaded.since.timestamp()), "owned_by": "typedrag"}
