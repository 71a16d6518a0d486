"""The passages that an answer uses, told by their words without an LM."""

from __future__ import annotations

from collections.abc import Sequence

from typedrag.records import Passage
from typedrag.texts.words import content_words

_NEW_WORDS = 2


def used_passages(answer: str, passages: Sequence[Passage], question: str) -> frozenset[str]:
    """The ids of the passages that an answer uses.

    A passage counts as used if it holds at least two content words of the answer, or its only one, that are neither
    in the question nor in a passage which holds more of the answer. An answer without words of its own, besides the
    question's, may use all of them.

    Example:
        >>> passages = [Passage("yeast", "Old yeast makes little gas."), Passage("cats", "Cats make noise at night.")]
        >>> sorted(used_passages("Bread gets dense because old yeast makes little gas.", passages, "Why?"))
        ['yeast']
        >>> sorted(used_passages("Cats.", passages, "Who?")), sorted(used_passages("Dogs bark.", passages, "Who?"))
        (['cats'], [])
    """
    answered = content_words(answer) - content_words(question)
    shared = {p.id: answered & content_words(f"{p.title} {p.text}") for p in passages}
    used: set[str] = set()
    explained: set[str] = set()
    for passage_id, words in sorted(shared.items(), key=lambda pair: -len(pair[1])):
        if len(words - explained) >= min(_NEW_WORDS, len(answered)):
            used.add(passage_id)
            explained |= words
    return frozenset(used)
