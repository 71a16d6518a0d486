"""Answers and their events in the shapes of OpenAI's chat completions."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any
from urllib.parse import quote

from typedrag.core.events import AnswerEnded, AnswerStarted, AnswerToken, Event, Read, SubAnswered
from typedrag.core.records import NOT_FROM_COLLECTION, Answer, Answered
from typedrag.serving.errors import Fault
from typedrag.text.sentences import cited_sentences

SUPERSEDED = "\n\n---\n\n*What stands above was a draft. The answer:*\n\n"
"""The text between a streamed draft and the answer, if they differ: a client cannot take back what it has shown."""


class Reply:
    """Makes the objects of one reply, which share an id.

    Args:
        model: The name of the program.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self.created = int(time.time())

    def completion(self, answer: Answer) -> dict[str, Any]:
        """The whole answer as one object."""
        begun = len(answer.marked) - len(answer.answer)
        message = {
            "role": "assistant",
            "content": answer.marked,
            "refusal": None,
            "annotations": annotate(answer, begun),
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return self.make("chat.completion", choices=[choice], usage=usage(answer), typedrag=describe_answer(answer))

    def make(self, kind: str, **fields: Any) -> dict[str, Any]:
        """An object of a kind, with the reply's id, date and model."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, **fields}


def annotate(answer: Answer, begun: int) -> list[dict[str, Any]]:
    """The citations of an answer, by the sentences that they support.

    Args:
        answer: The answer.
        begun: The position in the message's content at which the answer begins.
    """
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
    """The tokens of all LM calls, as far as the LM's server reports them."""
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
    """Renders events as the chunks of a stream that ends in `[DONE]` or an error.

    Args:
        reply: The reply that the chunks belong to.
        usage: Whether the last chunk has the number of tokens.
    """

    def __init__(self, reply: Reply, *, usage: bool) -> None:
        self._reply = reply
        self._usage = usage
        self._text = StreamedText()
        self._begun = False

    def __call__(self, event: Event | Fault) -> str:
        """The text to send for an event; empty if there is none."""
        if isinstance(event, Fault):
            return _data(event.to_dict(""))
        chunks = [] if self._begun else [self._delta({"role": "assistant", "content": ""})]
        self._begun = True
        if piece := self._text.add(event):
            chunks.append(self._delta({"content": piece}))
        if isinstance(event, AnswerEnded):
            chunks += self._end(event.answer)
        return "".join(map(_data, chunks)) + ("data: [DONE]\n\n" if isinstance(event, AnswerEnded) else "")

    def _end(self, answer: Answer) -> list[dict[str, Any]]:
        begun, end = self._text.begun, self._text.begun + len(answer.marked)
        cited = annotate(answer, end - len(answer.answer))
        last = self._delta({}, finish_reason="stop")
        last["typedrag"] = {**describe_answer(answer), "answer_start": begun, "answer_end": end}
        chunks = [self._delta({"annotations": cited})] if cited else []
        chunks.append(last)
        if self._usage:
            chunks.append(self._reply.make("chat.completion.chunk", choices=[], usage=usage(answer)))
        return chunks

    def _delta(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = self._reply.make("chat.completion.chunk", choices=[choice])
        return {**chunk, "usage": None} if self._usage else chunk


class StreamedText:
    """The text of an answer as it is streamed; a client can only append to it.

    If the answer turns out to differ from what was sent, all of it follows after `SUPERSEDED`. What is sent ends in
    the answer, or in a longer text that it was cut from because a small LM had begun to repeat itself.

    Attributes:
        sent: All text sent so far.
        begun: The position at which the answer begins.
    """

    def __init__(self) -> None:
        self.sent = ""
        self.begun = 0
        self._from_knowledge = False

    def add(self, event: Event) -> str:
        """The text to send for an event."""
        match event:
            case Read(part="", passages=passages):
                self._from_knowledge = not passages
            case SubAnswered(sub_answer=sub_answer):
                self._from_knowledge |= sub_answer.answered is Answered.KNOWLEDGE
            case AnswerStarted():
                return self._start() + self._send(f"{NOT_FROM_COLLECTION}\n" if self._from_knowledge else "")
            case AnswerToken(text=text):
                return self._send(text)
            case AnswerEnded(answer=answer):
                return self._end(answer.marked)
        return ""

    def _start(self) -> str:
        piece = self._send(SUPERSEDED) if self.sent else ""
        self.begun = len(self.sent)
        return piece

    def _end(self, text: str) -> str:
        sent = self.sent[self.begun :]
        if sent.startswith(text):
            return ""
        if text.startswith(sent):
            return self._send(text[len(sent) :])
        return self._start() + self._send(text)

    def _send(self, piece: str) -> str:
        self.sent += piece
        return piece


def without_drafts(text: str) -> str:
    """The final answer in a streamed text that a client sends back as an earlier turn.

    Example:
        >>> without_drafts("Old yea" + SUPERSEDED + "Cold dough rises slowly.")
        'Cold dough rises slowly.'
    """
    return text.rpartition(SUPERSEDED)[2]


def _data(values: dict[str, Any]) -> str:
    return f"data: {json.dumps(values, ensure_ascii=False)}\n\n"
