"""`/v1/chat/completions` and `/v1/models` in the shapes of OpenAI, for its chat clients and libraries."""

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, Self

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from typedrag.core.events import AnswerEnded, AnswerStarted, AnswerToken, Event, Read, SubAnswered
from typedrag.core.question_types import QuestionType
from typedrag.core.records import CUT_OFF, NOT_FROM_COLLECTION, Answer, Answered
from typedrag.files.text_files import WholeText, whole
from typedrag.serving.programs import LoadedProgram
from typedrag.serving.responses import (
    UNSUPPORTED,
    ErrorReply,
    Fault,
    Refused,
    event_stream,
    passage_url,
    unless_client_leaves,
)
from typedrag.serving.routes import AskedType, keep, keep_answer
from typedrag.serving.schema import ANSWERING, replies
from typedrag.serving.service import Service
from typedrag.signatures.answering import Turn
from typedrag.text.sentences import cited_sentences

SUPERSEDED = "\n\n---\n\n*What stands above was a draft. The answer:*\n\n"
"""The text between a streamed draft and the answer, if they differ: a client cannot take back what it has shown."""


_SPEAKERS = ("user", "assistant")
_TEXTS = ("text", "input_text", "output_text")
MOST_MESSAGES = 10_000


class Part(BaseModel):
    """A part of a message; only text is read."""

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
            return "\n".join(part.text for part in self.content if part.type in _TEXTS)
        return self.content or ""


def refuse(words: str) -> BeforeValidator:
    """Refuse a field that asks for something, in words."""

    def check(value: object) -> None:
        if value:
            raise PydanticCustomError(UNSUPPORTED, words)

    return BeforeValidator(check)


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool | None = False


class TextFormat(BaseModel):
    """The form of the answer, which is text."""

    type: Literal["text"] = "text"


class ModelRequest(BaseModel):
    """The fields that requests of either of OpenAI's APIs have."""

    model: WholeText = Field(default="", description="A name of GET /v1/models; the first by default.")
    stream: bool | None = False
    question_type: AskedType = None
    tool_choice: Literal["auto", "none"] | None = Field(default=None, description="No tool is ever called.")
    sources_in_text: bool | None = Field(
        default=None, description="Whether sources follow the text; the server's setting else."
    )


class ChatRequest(ModelRequest):
    """A chat; the user's last message is the question. Unknown fields are ignored."""

    messages: list[Message] = Field(
        min_length=1,
        max_length=MOST_MESSAGES,
        examples=[[{"role": "user", "content": "Why does homemade bread turn out dense and heavy?"}]],
    )
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, le=1, description="There is one answer; more cannot be asked for.")
    response_format: TextFormat | None = None
    function_call: Literal["auto", "none"] | None = Field(default=None, description="No function is ever called.")
    audio: Annotated[None, refuse("Answers are text")] = None


class SourcePassage(TypedDict):
    """A passage of the collection that an answer cites."""

    id: str
    title: str
    text: str


class AboutAnswer(TypedDict):
    """The fields of an answer that OpenAI's shapes lack, and where it stands in all that was sent."""

    question: str
    question_type: QuestionType | None
    type_unsure: bool
    answered: Answered
    grounded: bool
    fallback: str
    passages: list[SourcePassage]
    answer_start: int
    answer_end: int


class Citation(TypedDict):
    """A passage, and the sentence that it supports, by its place in the text."""

    url: str
    title: str
    start_index: int
    end_index: int
    passage_id: str


class Shape(ABC):
    """The shape of one of OpenAI's APIs: renders an answer at once, or the events of answering as a stream.

    A client can only append to what it got: if the answer turns out to differ, all of it follows after `SUPERSEDED`.
    What is sent ends in the answer, or in a longer text that it was cut from because a small LM had begun to repeat
    itself. The answer begins at `_begun` of what is `_sent`.
    """

    def __init__(self, request: Request, body: ModelRequest) -> None:
        service: Service = request.app.state.service
        choice = body.sources_in_text
        self._sources = service.settings.sources_in_text if choice is None else choice
        self.model, self.created = find_program(request, body.model).name, int(time.time())
        self._sent, self._begun = "", 0
        self._opened = self._from_knowledge = False

    @abstractmethod
    def render(self, answer: Answer) -> Mapping[str, Any]:
        """The reply that is no stream."""

    @abstractmethod
    def open(self) -> str:
        """The first part of a stream."""

    @abstractmethod
    def append(self, piece: str) -> str:
        """A part with the next piece of the text."""

    @abstractmethod
    def close(self, answer: Answer) -> str:
        """The last part."""

    @abstractmethod
    def fail(self, fault: Fault) -> str:
        """The last part if there is no answer."""

    def __call__(self, event: Event | Fault) -> str:
        part = "" if self._opened else self.open()
        self._opened = True
        if isinstance(event, Fault):
            return part + self.fail(event)
        piece = self._next_piece(event)
        if isinstance(event, AnswerEnded):
            piece += self._list_sources(event.answer)
        if piece:
            self._sent += piece
            part += self.append(piece)
        return part + self.close(event.answer) if isinstance(event, AnswerEnded) else part

    def text(self, answer: Answer) -> str:
        """All that a stream has sent, or the text of a reply that is none."""
        return self._sent or answer.marked + self._list_sources(answer)

    def cite(self, answer: Answer) -> list[Citation]:
        """The citations by the sentences that they support."""
        cited, begun = answer.cited, self._begun + len(answer.marked) - len(answer.answer)
        titles = {passage.id: passage.title or passage.id for passage in cited}
        return [
            {
                "url": passage_url(id_),
                "title": titles[id_],
                "start_index": begun + start,
                "end_index": begun + end,
                "passage_id": id_,
            }
            for start, end, id_ in cited_sentences(answer.answer, cited, answer.question)
        ]

    def describe(self, answer: Answer) -> AboutAnswer:
        return {
            "question": answer.question,
            "question_type": answer.question_type,
            "type_unsure": answer.type_unsure,
            "answered": answer.answered,
            "grounded": answer.grounded,
            "fallback": answer.fallback,
            "passages": [{"id": p.id, "title": p.title, "text": p.text} for p in answer.cited],
            "answer_start": self._begun,
            "answer_end": self._begun + len(answer.marked),
        }

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

    def _list_sources(self, answer: Answer) -> str:
        return f"\n\n{answer.sources}" if self._sources and answer.sources else ""

    def _begin(self) -> str:
        piece = SUPERSEDED if self._sent else ""
        self._begun = len(self._sent) + len(piece)
        return piece


def cut_off(answer: Answer) -> bool:
    return CUT_OFF in answer.fallback


class Annotation(TypedDict):
    """A source of a sentence."""

    type: Literal["url_citation"]
    url_citation: Citation


class ChatAnswer(TypedDict):
    """The message that answers."""

    role: Literal["assistant"]
    content: str
    refusal: None
    annotations: list[Annotation]


class Choice(TypedDict):
    """The answer, and why it ended: `length` if the LM's reply was cut off."""

    index: int
    message: ChatAnswer
    logprobs: None
    finish_reason: Literal["stop", "length"]


class TokenUsage(TypedDict):
    """The tokens of all LM calls of a question."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Head(TypedDict):
    """The fields that a completion and its chunks have in common; the model is the program."""

    id: str
    created: int
    model: str


class ChatCompletion(Head):
    """An answer in the shape of chat completions."""

    object: Literal["chat.completion"]
    choices: list[Choice]
    usage: TokenUsage
    typedrag: AboutAnswer


class Delta(TypedDict, total=False):
    """The next part of a message."""

    role: Literal["assistant"]
    content: str
    annotations: list[Annotation]


class ChunkChoice(TypedDict):
    """The next part of an answer, or why it ended."""

    index: int
    delta: Delta
    logprobs: None
    finish_reason: Literal["stop", "length"] | None


class Chunk(Head):
    """A part of an answer in the shape of chat completions."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChunkChoice]
    usage: NotRequired[TokenUsage | None]
    typedrag: NotRequired[AboutAnswer]


class ChatShape(Shape):
    """Chat completions; a stream ends in `[DONE]`, perhaps after an error, and has the tokens at its end if asked."""

    def __init__(self, request: Request, body: ChatRequest) -> None:
        super().__init__(request, body)
        self._head: Head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": self.created, "model": self.model}
        self._usage = bool(body.stream_options and body.stream_options.include_usage)

    def render(self, answer: Answer) -> ChatCompletion:
        cited = self._annotate(answer)
        message: ChatAnswer = {"role": "assistant", "content": self.text(answer), "refusal": None, "annotations": cited}
        choice: Choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(answer)}
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": _count_tokens(answer),
            "typedrag": self.describe(answer),
        }

    def open(self) -> str:
        return self._delta({"role": "assistant", "content": ""})

    def append(self, piece: str) -> str:
        return self._delta({"content": piece})

    def close(self, answer: Answer) -> str:
        cited = self._annotate(answer)
        part = self._delta({"annotations": cited}) if cited else ""
        part += self._delta({}, finish_reason=_finish_reason(answer), typedrag=self.describe(answer))
        return part + (self._chunk(usage=_count_tokens(answer)) if self._usage else "") + _DONE

    def fail(self, fault: Fault) -> str:
        return _data(fault.to_dict()) + _DONE

    def _annotate(self, answer: Answer) -> list[Annotation]:
        return [{"type": "url_citation", "url_citation": citation} for citation in self.cite(answer)]

    def _delta(self, delta: Delta, finish_reason: Literal["stop", "length"] | None = None, **more: Any) -> str:
        choice: ChunkChoice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._chunk(choice, **more)

    def _chunk(self, *choices: ChunkChoice, **more: Any) -> str:
        usage = {"usage": None} if self._usage else {}
        return _data({**self._head, "object": "chat.completion.chunk", "choices": choices, **usage, **more})


def _finish_reason(answer: Answer) -> Literal["stop", "length"]:
    return "length" if cut_off(answer) else "stop"


def _count_tokens(answer: Answer) -> TokenUsage:
    read, written = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


_DONE = "data: [DONE]\n\n"


def _data(values: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(values, ensure_ascii=False)}\n\n"


router = APIRouter(prefix="/v1", tags=["openai"])


@router.post("/chat/completions", responses=replies(ChatCompletion, *ANSWERING, events=Chunk | ErrorReply))
async def chat_completions(body: ChatRequest, request: Request) -> Response:
    """Answer the last question of a chat, in the shape of OpenAI's chat completions; with `stream`, in chunks."""
    return await answer_chat(request, body, "messages", body.messages, ChatShape(request, body))


@router.post("/completions", include_in_schema=False)
@router.post("/embeddings", include_in_schema=False)
async def not_served(request: Request) -> None:
    """Say what is served instead of OpenAI's older and other paths."""
    message = f"{request.url.path} is not served: ask POST /v1/chat/completions."
    raise Refused(Fault(404, "not_served", message))


class Model(TypedDict):
    """A program that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(TypedDict):
    """The programs that are served."""

    object: Literal["list"]
    data: list[Model]


@router.get("/models")
async def models(request: Request) -> Models:
    """The programs that are served, the default one first."""
    service: Service = request.app.state.service
    return {"object": "list", "data": [_model(loaded) for loaded in service.programs.values()]}


@router.get("/models/{model}", responses=replies(Model, 404))
async def model(model: str, request: Request) -> Model:
    """A program that is served."""
    return _model(find_program(request, model))


async def answer_chat(
    request: Request, body: ModelRequest, field: str, messages: list[Message], shape: Shape
) -> Response:
    """Answer the last of the messages in a field of the body; a shape renders the answer or, if asked for, a stream."""
    service: Service = request.app.state.service
    question, turns = conversation(messages, field)
    arguments = (question, shape.model, turns, body.question_type)
    if body.stream:
        return await event_stream(request, keep_answer(request, service.stream(*arguments)), shape)
    answer = await unless_client_leaves(request, service.answer(*arguments))
    await keep(request, answer)
    return JSONResponse(shape.render(answer))


def conversation(messages: list[Message], field: str) -> tuple[str, tuple[Turn, ...]]:
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    if not places:
        raise Refused(Fault(422, "invalid_request", f"{field}: There is no message of the user.", param=field))
    last = messages[places[-1]]
    if isinstance(last.content, list) and any(part.type not in _TEXTS for part in last.content):
        raise Refused(Fault(422, UNSUPPORTED, f"{field}: Only text can be read of the last message.", param=field))
    spoken = [message for message in messages[: places[-1]] if message.role in _SPEAKERS]
    earlier = [(m.role, m.text.rpartition(SUPERSEDED)[2].strip()) for m in spoken]  # without drafts of answers
    return last.text, tuple(Turn.model_validate({"speaker": role, "text": text}) for role, text in earlier if text)


def find_program(request: Request, name: str) -> LoadedProgram:
    service: Service = request.app.state.service
    if name and name not in service.programs:
        message = f"The model `{name[:100]}` does not exist; GET /v1/models lists those that do."
        raise Refused(Fault(404, "model_not_found", message, param="model"))
    return service.program(name)


def _model(loaded: LoadedProgram) -> Model:
    created = int(loaded.since.timestamp())
    return {"id": loaded.name, "object": "model", "created": created, "owned_by": "typedrag"}
