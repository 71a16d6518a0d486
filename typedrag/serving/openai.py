"""`/v1/chat/completions` and `/v1/models` in the shapes of OpenAI, for its chat clients and libraries."""

import json
import time
import uuid
from typing import Any, Literal, Self
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field, model_validator

from typedrag.core.events import AnswerEnded, AnswerStarted, AnswerToken, Event, Read, SubAnswered
from typedrag.core.records import CUT_OFF, NOT_FROM_COLLECTION, Answer, Answered
from typedrag.files.text_files import WholeText, whole
from typedrag.serving.programs import LoadedProgram
from typedrag.serving.responses import EVENTS, Fault, Refused, event_stream, unless_client_leaves
from typedrag.serving.routes import AskedType, keep, keep_answer
from typedrag.serving.service import Service
from typedrag.signatures.answering import Turn
from typedrag.text.sentences import cited_sentences

SUPERSEDED = "\n\n---\n\n*What stands above was a draft. The answer:*\n\n"
"""The text between a streamed draft and the answer, if they differ: a client cannot take back what it has shown."""


def complete(model: str, answer: Answer, *, sources: bool = False) -> dict[str, Any]:
    """The reply whose model is the name of the program; with `sources`, they follow the text."""
    cited = annotate(answer, len(answer.marked) - len(answer.answer))
    content = answer.marked + (_sources(answer) if sources else "")
    message = {"role": "assistant", "content": content, "refusal": None, "annotations": cited}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(answer)}
    head = _head("chat.completion", model)
    return {**head, "choices": [choice], "usage": usage(answer), "typedrag": describe_answer(answer)}


def _head(kind: str, model: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


def _sources(answer: Answer) -> str:
    return f"\n\n{answer.sources}" if answer.sources else ""


def _finish_reason(answer: Answer) -> str:
    return "length" if CUT_OFF in answer.fallback else "stop"


def annotate(answer: Answer, begun: int) -> list[dict[str, Any]]:
    """The citations of an answer, which begins at a place of the content, by the sentences that they support."""
    cited = answer.cited
    titles = {passage.id: passage.title or passage.id for passage in cited}
    return [
        {
            "type": "url_citation",
            "url_citation": {
                "url": f"urn:typedrag:passage:{quote(id_, safe='')}",
                "title": titles[id_],
                "start_index": begun + start,
                "end_index": begun + end,
                "passage_id": id_,
            },
        }
        for start, end, id_ in cited_sentences(answer.answer, cited, answer.question)
    ]


def usage(answer: Answer) -> dict[str, int]:
    read, written = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def describe_answer(answer: Answer) -> dict[str, Any]:
    """The fields of an answer that OpenAI's shapes lack."""
    return {
        "question": answer.question,
        "question_type": answer.question_type,
        "type_unsure": answer.type_unsure,
        "answered": answer.answered,
        "grounded": answer.grounded,
        "fallback": answer.fallback,
        "passages": [{"id": p.id, "title": p.title, "text": p.text} for p in answer.cited],
    }


class Chunks:
    """Renders events as the chunks of a stream that ends in `[DONE]`, perhaps after an error; with `usage`, the last
    chunk has the number of tokens, and with `sources`, they follow the text.

    A client can only append to what it got: if the answer turns out to differ, all of it follows after `SUPERSEDED`.
    What is sent ends in the answer, or in a longer text that it was cut from because a small LM had begun to repeat
    itself. The answer begins at `_begun` of what is `_sent`.
    """

    def __init__(self, model: str, *, usage: bool, sources: bool = False) -> None:
        self._head, self._usage, self._sources = _head("chat.completion.chunk", model), usage, sources
        self._sent, self._begun = "", 0
        self._opened = self._from_knowledge = False

    def __call__(self, event: Event | Fault) -> str:
        if isinstance(event, Fault):
            return f"{_data(event.to_dict())}data: [DONE]\n\n"
        chunks = [] if self._opened else [self._delta({"role": "assistant", "content": ""})]
        self._opened = True
        if piece := self._next_piece(event):
            self._sent += piece
            chunks.append(self._delta({"content": piece}))
        if not isinstance(event, AnswerEnded):
            return "".join(map(_data, chunks))
        answer, end = event.answer, self._begun + len(event.answer.marked)
        if self._sources and (text := _sources(answer)):
            chunks.append(self._delta({"content": text}))
        if cited := annotate(answer, end - len(answer.answer)):
            chunks.append(self._delta({"annotations": cited}))
        own = {**describe_answer(answer), "answer_start": self._begun, "answer_end": end}
        chunks.append({**self._delta({}, finish_reason=_finish_reason(answer)), "typedrag": own})
        if self._usage:
            chunks.append({**self._head, "choices": [], "usage": usage(answer)})
        return "".join(map(_data, chunks)) + "data: [DONE]\n\n"

    def _delta(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head, "choices": [choice], **({"usage": None} if self._usage else {})}

    def _next_piece(self, event: Event) -> str:
        match event:
            case Read(part="", passages=passages):
                self._from_knowledge = not passages
            case SubAnswered(sub_answer=sub_answer):
                self._from_knowledge |= sub_answer.answered is Answered.KNOWLEDGE
            case AnswerStarted():
                return self._begin() + (f"{NOT_FROM_COLLECTION}\n" if self._from_knowledge else "")
            case AnswerToken(text=text):
                return text
            case AnswerEnded(answer=answer):
                text, sent = answer.marked, self._sent[self._begun :]
                if sent.startswith(text):
                    return ""
                return text[len(sent) :] if text.startswith(sent) else self._begin() + text
        return ""

    def _begin(self) -> str:
        piece = SUPERSEDED if self._sent else ""
        self._begun = len(self._sent) + len(piece)
        return piece


def _data(values: dict[str, Any]) -> str:
    return f"data: {json.dumps(values, ensure_ascii=False)}\n\n"


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
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type == "text")
        return self.content or ""


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool | None = False


class ResponseFormat(BaseModel):
    """The form of the answer, which is text."""

    type: Literal["text"] = "text"


class ChatRequest(BaseModel):
    """A chat; the user's last message is the question. Unknown fields are ignored."""

    model: WholeText = Field(default="", description="A name of GET /v1/models; the first by default.")
    messages: list[Message] = Field(
        min_length=1,
        max_length=10_000,
        examples=[[{"role": "user", "content": "Why does homemade bread turn out dense and heavy?"}]],
    )
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, le=1, description="There is one answer; more cannot be asked for.")
    response_format: ResponseFormat | None = None
    tool_choice: Literal["auto", "none"] | None = Field(default=None, description="No tool is ever called.")
    question_type: AskedType = None
    sources_in_text: bool | None = Field(
        default=None, description="Whether sources follow the text; the server's setting else."
    )


@router.post("/chat/completions", responses={200: {"content": {EVENTS: {}}}})
async def chat_completions(body: ChatRequest, request: Request) -> Response:
    """Answer the last question of a chat, in the shape of OpenAI's chat completions; with `stream`, in chunks."""
    service: Service = request.app.state.service
    name = _find_program(service, body.model).name
    question, turns = conversation(body.messages)
    arguments = (question, name, turns, body.question_type)
    sources = service.settings.sources_in_text if body.sources_in_text is None else body.sources_in_text
    if body.stream:
        usage = bool(body.stream_options and body.stream_options.include_usage)
        events = keep_answer(request, service.stream(*arguments))
        return await event_stream(request, events, Chunks(name, usage=usage, sources=sources))
    answer = await unless_client_leaves(request, service.answer(*arguments))
    await keep(request, answer)
    return JSONResponse(complete(name, answer, sources=sources))


@router.post("/completions", include_in_schema=False)
@router.post("/embeddings", include_in_schema=False)
async def not_served(request: Request) -> None:
    """Say what is served instead of OpenAI's older and other paths."""
    message = f"{request.url.path} is not served: ask POST /v1/chat/completions."
    raise Refused(Fault(404, "not_served", message))


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
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    if not places:
        raise Refused(Fault(422, "invalid_request", "messages: There is no message of the user.", param="messages"))
    last = messages[places[-1]]
    if isinstance(last.content, list) and any(part.type != "text" for part in last.content):
        raise Refused(
            Fault(422, "unsupported", "messages: Only text can be read of the last message.", param="messages")
        )
    spoken = [message for message in messages[: places[-1]] if message.role in _SPEAKERS]
    earlier = [(m.role, m.text.rpartition(SUPERSEDED)[2].strip()) for m in spoken]  # without drafts of answers
    return last.text, tuple(Turn.model_validate({"speaker": role, "text": text}) for role, text in earlier if text)


def _find_program(service: Service, name: str) -> LoadedProgram:
    if name and name not in service.programs:
        message = f"The model `{name[:100]}` does not exist; GET /v1/models lists those that do."
        raise Refused(Fault(404, "model_not_found", message, param="model"))
    return service.program(name)


def _model(loaded: LoadedProgram) -> dict[str, str | int]:
    return {"id": loaded.name, "object": "model", "created": int(loaded.since.timestamp()), "owned_by": "typedrag"}
