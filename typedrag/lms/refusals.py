"""The words of servers about a request that they refuse, in whatever form they come.

DSPy's client reads the words of OpenAI's form of an error alone. Imported, this module lets it read those of others:
FastAPI's list of faults, older versions of vLLM, and errors within a reply.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import dspy
from dspy._vendor.lm15.providers import openai_chat
from dspy._vendor.lm15.sse import SSEEvent
from dspy.lm15 import Message, Request

_LONGEST = 500  # characters of a page that is no JSON
_WORDS = ("error", "message", "msg", "detail", "errors")  # keys that servers put their words under
_WINDOW = re.compile(
    r"(?:context|prompt|input).{0,20}(?:length|window|size|is too long)|too many (?:input )?tokens|exceed_context_size",
    re.IGNORECASE,
)
_SYSTEM = re.compile(
    r"system (?:role|message|prompt)s?\b.{0,20}not supported|roles must alternate|only user and assistant roles"
    r"|does not support '(?:system|developer)'|(?:system|developer) instruction is not enabled",
    re.IGNORECASE,
)


def server_words(body: Any) -> str:
    """The words in a server's reply about a fault; empty if there are none.

    Example:
        >>> server_words({"detail": [{"loc": ["body", "stream_options"], "msg": "extra fields not permitted"}]})
        'body.stream_options: extra fields not permitted'
        >>> server_words({"object": "error", "message": "no such model", "code": 404})
        'no such model'
    """
    if isinstance(body, list):
        return "; ".join(filter(None, map(server_words, body)))
    if not isinstance(body, Mapping):
        return body.strip() if isinstance(body, str) else ""
    words = next((words for key in _WORDS if (words := server_words(body.get(key)))), "")
    place = ".".join(map(str, body["loc"])) if isinstance(body.get("loc"), list) else ""
    return f"{place}: {words}" if place and words else words


def refuses_system_role(error: dspy.LMError) -> bool:
    return bool(_SYSTEM.search(str(error)))


def refuses_stream(error: dspy.LMError) -> bool:
    """True if a server knows no streams: it says so, or it has sent a whole reply instead."""
    if isinstance(error, dspy.LMInvalidRequestError):
        return "stream" in str(error).lower()
    return isinstance(error, dspy.LMStreamAssemblyError) or "SSE line exceeds" in str(error)


def without_system_role(request: Request) -> Request:
    """The request with its system prompt at the beginning of the user's first message."""
    system, first = request.system, request.messages[0]
    if not isinstance(system, str) or first.role != "user" or first.text is None:
        return request
    return replace(request, system=None, messages=(Message.user(f"{system}\n\n{first.text}"), *request.messages[1:]))


_normalize_error = openai_chat.OpenAIChatLM.normalize_error
_parse_stream_events = openai_chat.OpenAIChatLM.parse_stream_events
_response_from_chat_body = openai_chat._response_from_chat_body


def _normalize_any_error(self: Any, status: int, body: str) -> Any:
    try:
        read = json.loads(body)
    except ValueError:
        read = body[:_LONGEST]
    words = server_words(read) or f"HTTP {status}, and no word of why"
    error = read["error"] if isinstance(read, dict) and isinstance(read.get("error"), dict) else {}
    kind = {name: error[name] for name in ("code", "type") if error.get(name)}
    if status in (400, 413, 422, 500) and _WINDOW.search(f"{words} {kind.get('type')}"):
        kind["code"] = "context_length_exceeded"
    return _normalize_error(self, status, json.dumps({"error": {**kind, "message": words}}))


def _with_plain_error(body: Any) -> Any:
    """A body with the error of its choice, or one that is a mere text, where DSPy's client looks for it."""
    if not isinstance(body, dict) or isinstance(body.get("error"), dict):
        return body
    choices = body["choices"] if isinstance(body.get("choices"), list) else []
    for error in (body.get("error"), *(choice.get("error") for choice in choices if isinstance(choice, dict))):
        if error and (words := server_words(error)):
            return {"error": {"code": error.get("code") if isinstance(error, dict) else None, "message": words}}
    if not choices and (words := server_words(body)):
        return {"error": {"message": words}}
    return body


def _read_body(provider: str, body: Any, **how: Any) -> Any:
    return _response_from_chat_body(provider, _with_plain_error(body), **how)


def _read_stream(self: Any, request: Any, event: SSEEvent) -> Iterator[Any]:
    if '"error"' in event.data or '"detail"' in event.data:
        event = replace(event, data=json.dumps(_with_plain_error(json.loads(event.data))))
    return _parse_stream_events(self, request, event)


openai_chat.OpenAIChatLM.normalize_error = _normalize_any_error
openai_chat.OpenAIChatLM.parse_stream_events = _read_stream
openai_chat._response_from_chat_body = _read_body
