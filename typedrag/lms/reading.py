"""The fields within an LM's reply, freed from thoughts, fences, greetings and broken ends."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_THOUGHTS = re.compile(
    r"\s*(?:[<\[](think(?:ing)?|thought|reasoning)[>\]].*?(?:[<\[]/\1[>\]]|\Z)"
    r"|.*?[<\[]/(?:think(?:ing)?|thought|reasoning)[>\]])",
    re.DOTALL | re.IGNORECASE,
)
_BEGINNINGS = ("{", "[[ ##", "```")
_CLOSING = {"{": "}", "[": "]"}
_DECODER = json.JSONDecoder(strict=False)
_MOST_OBJECTS = 50
"""Objects tried in a reply: examples in its text may come before the real one."""


def without_thoughts(reply: str) -> str:
    """A reply without the thoughts before it, which may lack their opening or their closing tag.

    Example:
        >>> without_thoughts('<think>{"a": 1}?</think> {"answer": "<think> is a tag"}')
        '{"answer": "<think> is a tag"}'
        >>> without_thoughts("So it is.</think>Yeast."), without_thoughts("<think>Is it")
        ('Yeast.', '')
    """
    reply = reply.lstrip("\ufeff \n\r\t")
    while not reply.startswith(_BEGINNINGS) and (thoughts := _THOUGHTS.match(reply)):
        reply = reply[thoughts.end() :].lstrip("\ufeff \n\r\t")
    return reply


def find_object(reply: str, names: Sequence[str]) -> str:
    """The JSON object of a reply that has fields of these names, its keys spelt as in `names`. If it breaks off,
    the text from its beginning on, see `finish`; if there is no object, the whole reply.

    Example:
        >>> find_object('Like {"a": 1}: ```json\\n{"Sub Queries": ["Why?"]}\\n```', ["sub_queries"])
        '{"sub_queries": ["Why?"]}'
        >>> find_object('{"reply": {"answer": "Yeast."}}', ["answer"])
        '{"answer": "Yeast."}'
    """
    begun = [match.start() for match in re.finditer(r"\{", reply)][:_MOST_OBJECTS]
    for start in begun:
        try:
            value, _ = _DECODER.raw_decode(reply, start)
        except ValueError:
            continue
        if fields := _fields(value, names):
            return json.dumps(fields, ensure_ascii=False)
    return finish(reply[begun[0] :]) if begun else reply


def finish(text: str) -> str:
    """JSON that breaks off in a list, closed, with null for the unfinished item; other text is unchanged.

    Example:
        >>> finish('{"sub_queries": ["Why does it rise?", "What does yea')
        '{"sub_queries": ["Why does it rise?", null]}'
        >>> finish('{"citations": [1, 2], "answer": "Yea')
        '{"citations": [1, 2], "answer": "Yea'
    """
    text = text.strip()
    if not text.startswith(("{", "[")):
        return text
    open_: list[str] = []
    first_list = item = 0  # the depth of the outermost list, and the place where its last item begins
    for match in _SIGNS.finditer(text):
        sign = match[0]
        if sign in _CLOSING:
            open_.append(sign)
            if sign == "[" and not first_list:
                first_list, item = len(open_), match.end()
        elif sign in "]}":
            if not open_:
                break
            open_.pop()
            if len(open_) < first_list:
                first_list = 0
        elif sign == "," and len(open_) == first_list:
            item = match.end()
        if not open_:
            return text
    if not first_list:
        return text
    whole = text[item:].strip()
    if not _is_whole(whole):
        text = f"{text[:item].rstrip()} null" if text[:item].rstrip().endswith(",") else f"{text[:item].rstrip()}null"
    return text + "".join(_CLOSING[sign] for sign in reversed(open_[:first_list]))


_SIGNS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[\[\]{},]', re.DOTALL)
"""Strings, and the signs between them that give JSON its structure."""


def _is_whole(item: str) -> bool:
    if item[-1:] not in ('"', "}", "]"):
        return False  # a number may have had more digits
    try:
        json.loads(item, strict=False)
    except ValueError:
        return False
    return True


def _fields(value: Any, names: Sequence[str]) -> dict[str, Any]:
    """The named fields of an object, or else of one within it."""
    if not isinstance(value, dict):
        return {}
    spelt = {_spelling(name): name for name in names}
    fields = {spelt[_spelling(key)]: item for key, item in value.items() if _spelling(key) in spelt}
    within = (_fields(item, names) for item in value.values()) if not fields else iter(())
    return fields or next(filter(None, within), {})


def _spelling(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())
