"""Which sub-queries of a decomposition are worth a search?"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

import dspy

from typedrag.words import content_words

_PROMPT_MARKS = ("[[", "]]", "##", "{", "}", "sub_quer")
_MAX_CHARS = 300
_LONGEST_FRAGMENT = 6
_ALIKE = 0.8
"""That a word and its misspelling are alike: for "pyton" and "python" it is 0.91, for "jva" and "java" 0.86."""

_NEGATIONS = frozenset("no not never nor without cannot can't don't doesn't isn't shouldn't".split())


class Sifted(NamedTuple):
    """Sub-queries that are kept, and those dropped with the reason, as `sub-query (reason)`."""

    kept: list[str]
    dropped: tuple[str, ...]


def sift(
    question: str, sub_queries: Sequence[str], *, prompt: str, limit: int, about: str = "", as_asked: bool = False
) -> Sifted:
    """Drop sub-queries that are no query, say nothing new, or have left the question's topic.

    Args:
        question: The question they were made from.
        sub_queries: In the LM's order, which is kept.
        prompt: What the LM was given, see `prompt_of`; a piece of it is no sub-query.
        limit: How many to keep.
        about: More words that belong to the topic, such as a debate's.
        as_asked: Whether the word that asks tells sub-queries apart, as it does the parts of a question:
            when something was founded, and by whom. Otherwise those are the same that look for the same.

    Example:
        >>> sift("Why does bread rise?", ["What does yeast do in bread?", "why bread rises", "What is a fish?"],
        ...      prompt="", limit=5).dropped
        ('why bread rises (repeats another)', 'What is a fish? (off the topic)')
    """
    topic = content_words(f"{question} {about}")
    said = _as_asked if as_asked else _said
    seen: list[object] = [said(question)]
    kept: list[str] = []
    dropped: list[str] = []
    for sub_query in (" ".join(s.split()) for s in sub_queries):
        words = content_words(sub_query)
        if reason := _no_query(sub_query, words, prompt):
            pass
        elif said(sub_query) in seen:
            reason = "repeats another"
        elif topic and not _on(topic, words):
            reason = "off the topic"
        elif len(kept) == limit:
            reason = f"one more than the {limit} allowed"
        if reason:
            dropped.append(f"{sub_query[:100]} ({reason})")
        else:
            kept.append(sub_query)
            seen.append(said(sub_query))
    return Sifted(kept, tuple(dropped))


def is_fragment(query: str, prompt: str) -> bool:
    """Whether a query is a piece of what the LM was given, see `prompt_of`."""
    said = " ".join(prompt.split()).lower()
    copied = len(query.split()) >= _LONGEST_FRAGMENT and query.lower().rstrip(".?") in said
    return copied or any(mark in query for mark in _PROMPT_MARKS)


def prompt_of(predictor: dspy.Predict, question: str) -> str:
    """What an LM may copy instead of writing: the instructions, and the demonstrations of other questions."""
    others = (demo for demo in predictor.demos if demo.get("question") != question)
    return " ".join([predictor.signature.instructions, *(str(value) for demo in others for value in demo.values())])


def _said(text: str) -> tuple[frozenset[str], bool]:
    # what is denied is not what is asserted, though both are about the same
    return content_words(text), not _NEGATIONS.isdisjoint(text.lower().split())


def _as_asked(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(" ?.!")


def _on(topic: frozenset[str], words: frozenset[str]) -> bool:
    """Whether there is a word of the topic among others, or one that its asker misspelt."""
    return bool(words & topic) or any(get_close_matches(word, topic, n=1, cutoff=_ALIKE) for word in words)


def _no_query(sub_query: str, words: frozenset[str], prompt: str) -> str:
    if "://" in sub_query or sub_query.startswith("www."):
        return "a URL"
    if not words:
        return "no query"
    if len(sub_query) > _MAX_CHARS:
        return "too long for a query"
    return "a fragment of the prompt" if is_fragment(sub_query, prompt) else ""
