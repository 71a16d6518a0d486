"""Which sub-queries of a decomposition are worth a search?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from typedrag.words import content_words

_PROMPT_MARKS = ("[[", "]]", "##", "{", "}", "sub_quer")
_MAX_CHARS = 300
_LONGEST_FRAGMENT = 6

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


def _said(text: str) -> tuple[frozenset[str], bool]:
    # what is denied is not what is asserted, though both are about the same
    return content_words(text), not _NEGATIONS.isdisjoint(text.lower().split())


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
