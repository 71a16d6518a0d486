"""Feedback for a predictor: its call, and the sentences of some texts that others lack.

Texts are compared by content words, without an LM: this costs nothing, but a sentence in entirely other
words counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typedrag.signatures.roles import Role
from typedrag.text.sentences import sentences
from typedrag.text.words import beginning, content_words

MOST_QUOTED = 3
"""The number of sentences or sub-questions that a feedback quotes."""
_TOUCHED = 0.5
"""The share of a sentence's content words that a text must have to touch it."""


@dataclass(frozen=True)
class PredictorCall:
    """A call of the predictor that feedback is for.

    Attributes:
        role: The predictor's role in its program.
        question: The question it was asked, which may be a sub-query.
        sources: The texts it wrote from: passages, or answers to parts of the question.
        written: The text it wrote; empty if it wrote none.
        outputs: All its outputs, by field.
    """

    role: Role
    question: str = ""
    sources: tuple[str, ...] = ()
    written: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)


def untouched(texts: Iterable[str], by: Iterable[str], question: str, most: int = MOST_QUOTED) -> list[str]:
    """The sentences of some texts that no other text touches, without repetitions.

    A text touches a sentence if it has half of its content words, leaving out the question's, which all texts have.
    The most important texts come first.

    Example:
        >>> untouched(["Yeast makes gas. Gluten holds the bubbles."], ["Gas comes from yeast."], "Why does bread rise?")
        ['Gluten holds the bubbles.']
    """
    topic = content_words(question)
    known = [content_words(text) for text in by]
    results: list[str] = []
    for sentence in (s for text in texts for s in sentences(text)):
        words = content_words(sentence) - topic
        if len(words) < 2 or any(_touches(other, words) for other in known):
            continue
        known.append(words)
        results.append(sentence)
        if len(results) == most:
            break
    return results


def touched(sentence: str, by: Iterable[str], question: str) -> bool:
    """True if one of the texts touches a sentence or a sub-question; see `untouched`.

    Example:
        >>> touched("What holds the gas?", ["The gas is held by gluten."], "Why does bread rise?")
        True
    """
    words = content_words(sentence) - content_words(question)
    return bool(words) and any(_touches(content_words(text), words) for text in by)


def quoted(text: str, most: int = 40) -> str:
    """The first words of a text, in quotes.

    Example:
        >>> quoted("Yeast makes gas.", most=2)
        '«Yeast makes …»'
    """
    return f"«{beginning(text, most)}»"


def listed(texts: Sequence[str], most: int | None = MOST_QUOTED, words: int = 25) -> str:
    """The first texts, quoted, and the number of the others; all of them if `most` is None.

    Example:
        >>> listed(["What is yeast?", "What is gas?"], most=1)
        '«What is yeast?» and 1 more'
    """
    more = f" and {len(texts) - most} more" if most is not None and len(texts) > most else ""
    return " ".join(quoted(text, words) for text in texts[:most]) + more


def _touches(text: frozenset[str], words: frozenset[str]) -> bool:
    return len(words & text) >= _TOUCHED * len(words)
