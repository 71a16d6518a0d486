"""The sentences of passages that support those of an answer, told by their words without an LM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from typedrag.records import Passage
from typedrag.texts.sentences import sentences
from typedrag.texts.words import content_words

_NEW_WORDS = 2
_MOST_SENTENCES = 200
"""Sentences of an answer that are looked at: a stranger's text may be nothing but full stops."""
_SHARE = 1 / 3
"""The share of a sentence's words; passages on the same subject have two or three in common with any sentence."""


class Support(NamedTuple):
    """A sentence of an answer, and the sentence of a passage that supports it.

    Attributes:
        sentence: The sentence of the answer.
        passage_id: The id of the passage.
        passage_sentence: The sentence of the passage.
    """

    sentence: str
    passage_id: str
    passage_sentence: str


def supporting_sentences(answer: str, passages: Sequence[Passage], question: str) -> list[Support]:
    """The sentences of passages that support each sentence of an answer, one a passage at most, best first.

    A sentence supports one of the answer if it holds a third of that one's content words, and at least two or the
    only one, not counting words of the question or of a better support.

    Example:
        >>> passages = [Passage("yeast", "Yeast is a fungus. Old yeast makes little gas."), Passage("cats", "Cats purr.")]
        >>> supporting_sentences("It is dense. The gas is little where yeast is old.", passages, "Why is bread dense?")
        [Support(sentence='The gas is little where yeast is old.', passage_id='yeast', passage_sentence='Old yeast makes little gas.')]
    """  # noqa: E501
    question_words = content_words(question)
    sentences_of = {p.id: [(s, content_words(s)) for s in sentences(p.text)] for p in passages}
    supports: list[Support] = []
    for sentence in list(dict.fromkeys(sentences(answer)))[:_MOST_SENTENCES]:
        words = content_words(sentence) - question_words
        best = [
            (passage_id, *max(((s, words & own) for s, own in candidates), key=lambda pair: len(pair[1])))
            for passage_id, candidates in sentences_of.items()
            if candidates and words
        ]
        explained: frozenset[str] = frozenset()
        for passage_id, supporting, shared in sorted(best, key=lambda entry: -len(entry[2])):
            if len(shared - explained) >= max(min(_NEW_WORDS, len(words)), _SHARE * len(words)):
                supports.append(Support(sentence, passage_id, supporting))
                explained |= shared
    return supports
