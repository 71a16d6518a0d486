"""Events of a question that is being answered, for any listener, which travels with the call, as steps do, so that
events also come from its threads. DSPy's own streaming cannot do this (stanfordnlp/dspy, issue 9154)."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

from typedrag.core.call_context import call_context, use_context
from typedrag.core.records import Answer, Passage, Step, SubAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened on the way to an answer; `part` is the sub-query whose answer it belongs to, if any."""

    name: ClassVar[str]
    part: str = ""

    def to_dict(self) -> dict[str, Any]:
        def plain(value: Any) -> Any:
            if isinstance(value, Answer):
                return value.to_dict()
            if is_dataclass(value):
                return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
            return [plain(item) for item in value] if isinstance(value, tuple | list) else value

        return {"event": self.name, **plain(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified(Event):
    """The question's type or route is known."""

    name = "classified"
    question_type: str = ""
    type_unsure: bool = False
    route: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched(Event):
    """Passages were searched for."""

    name = "searched"
    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Event):
    """The passages that the LM is about to answer from; none if it answers from its own knowledge."""

    name = "read"
    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded(Event):
    """A step has ended; its sub-steps, which had events of their own, are left out."""

    name = "step"
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAnswered(Event):
    """A sub-query has an answer; one without an answer only ends its step."""

    name = "sub_answer"
    sub_answer: SubAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStarted(Event):
    """The LM begins to write an answer. Earlier tokens belong to one that was given up, or to a draft."""

    name = "answer_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerToken(Event):
    """The next piece of the answer's text."""

    name = "token"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEnded(Event):
    """The answer, as a call of the program returns it; it counts where the tokens differ from it."""

    name = "answer"
    answer: Answer


Listener = Callable[[Event], None]


def listen(listener: Listener, *, tokens: bool = True) -> AbstractContextManager[None]:
    """Send a listener the events within, beside any listener around it. It is called in the thread of each event, and
    must not wait. With `tokens` it gets the answer's text while it is written, which reads an LM's reply token by
    token."""
    if (outer := call_context().listener) is None:
        return use_context(listener=listener, tokens_wanted=tokens)

    def send_to_both(event: Event) -> None:
        outer(event)
        listener(event)

    return use_context(listener=send_to_both, tokens_wanted=tokens or call_context().tokens_wanted)


def events_of_part(sub_query: str) -> AbstractContextManager[None]:
    return use_context(part=sub_query)


def emit(event: type[Event], **values: Any) -> None:
    """Send an event to the listener, if any, for the part that is being answered."""
    context = call_context()
    if context.listener is not None:
        context.listener(event(part=context.part, **values))
