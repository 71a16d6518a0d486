"""Which sub-queries of a decomposition are worth a search?"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

_PROMPT_MARKS = ("[[", "]]", "##", "{", "}", "sub_quer")
_MAX_CHARS = 300
_LONGEST_FRAGMENT = 6

# words that say what is asked, not what about
_FUNCTION_WORDS = frozenset(
    """a about all also an and any are as at be been being best but by can could did do does done for from
    get good had has have he her his how i if in into is it its make many me more most much my no not of on
    one or our out over she should so some such than that the their them then there these they this to too
    up us use used very was we were what when where which while who whom whose why will with would you your
    cause causes effect effects happen happens reason reasons way ways thing things""".split()
)
_NO_WORD = re.compile(r"[^a-z0-9]")
_NEGATIONS = frozenset("no not never nor without cannot can't don't doesn't isn't shouldn't".split())


class Sifted(NamedTuple):
    """Sub-queries that are kept, and those dropped with the reason, as `sub-query (reason)`."""

    kept: list[str]
    dropped: tuple[str, ...]


def sift(question: str, sub_queries: Sequence[str], *, prompt: str, limit: int, about: str = "") -> Sifted:
    """Drop sub-queries that are no query, say nothing new, or have left the question's topic.

    Args:
        question: The question they were made from.
        sub_queries: In the LM's order, which is kept.
        prompt: The instructions that the LM was given; a piece of them is no sub-query.
        limit: How many to keep.
        about: More words that belong to the topic, such as a debate's.

    Example:
        >>> sift("Why does bread rise?", ["What does yeast do in bread?", "why bread rises", "What is a fish?"],
        ...      prompt="", limit=5).dropped
        ('why bread rises (repeats another)', 'What is a fish? (off the topic)')
    """
    topic = content_words(f"{question} {about}")
    seen = [_said(question)]
    kept: list[str] = []
    dropped: list[str] = []
    for sub_query in (" ".join(s.split()) for s in sub_queries):
        words = content_words(sub_query)
        if reason := _no_query(sub_query, words, prompt):
            pass
        elif _said(sub_query) in seen:
            reason = "repeats another"
        elif topic and not words & topic:
            reason = "off the topic"
        elif len(kept) == limit:
            reason = f"one more than the {limit} allowed"
        if reason:
            dropped.append(f"{sub_query[:100]} ({reason})")
        else:
            kept.append(sub_query)
            seen.append(_said(sub_query))
    return Sifted(kept, tuple(dropped))


def content_words(text: str) -> frozenset[str]:
    """The stems of the words that say what a text is about.

    Example:
        >>> sorted(content_words("Why do the leaves of trees fall?"))
        ['fall', 'leav', 'tree']
    """
    words = set(_NO_WORD.sub(_spaced, text.lower()).split())
    return frozenset(_stemmer().stemWords(list(words - _FUNCTION_WORDS)))


def _said(text: str) -> tuple[frozenset[str], bool]:
    # what is denied is not what is asserted, though both are about the same
    return content_words(text), not _NEGATIONS.isdisjoint(text.lower().split())


def _spaced(match: re.Match[str]) -> str:
    character = match[0]
    if not character.isalnum():
        return " "
    # letters without case belong to scripts that often do without spaces: each counts as a word
    return f" {character} " if unicodedata.category(character) == "Lo" else character


def _no_query(sub_query: str, words: frozenset[str], prompt: str) -> str:
    if "://" in sub_query or sub_query.startswith("www."):
        return "a URL"
    if not words:
        return "no query"
    if len(sub_query) > _MAX_CHARS:
        return "too long for a query"
    said = " ".join(prompt.split()).lower()
    is_fragment = len(sub_query.split()) >= _LONGEST_FRAGMENT and sub_query.lower().rstrip(".?") in said
    if is_fragment or any(mark in sub_query for mark in _PROMPT_MARKS):
        return "a fragment of the prompt"
    return ""


def _stemmer() -> Any:
    # one for each use: it keeps the word it is at work on, so that threads cannot share it
    import Stemmer

    return Stemmer.Stemmer("english", 0)
