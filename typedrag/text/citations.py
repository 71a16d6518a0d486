"""The sentences of an answer and of passages that belong together, found by their words without an LM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from typedrag.core.records import Passage
from typedrag.text.sentences import sentences
from typedrag.text.words import content_words


class Support(NamedTuple):
    """A sentence of an answer, from `start` to before `end` in characters, and the passage that it uses."""

    start: int
    end: int
    passage_id: str


def cited_sentences(answer: str, cited: Sequence[Passage], question: str) -> list[Support]:
    """The sentences of an answer that use something of each passage it cites, see `used_passages`.

    A cited passage that no sentence uses counts as support for the whole answer.

    Args:
        answer: The text of the answer.
        cited: The passages that it cites.
        question: The question that it answers.

    Example:
        >>> passages = [Passage("yeast", "Old yeast makes little gas."), Passage("cats", "Cats make noise at night.")]
        >>> cited_sentences("It is dense. Old yeast makes little gas.", passages, "Why is bread dense?")
        [Support(start=13, end=40, passage_id='yeast'), Support(start=0, end=40, passage_id='cats')]
    """
    supports = []
    end = 0
    for sentence in sentences(answer):
        start = answer.find(sentence, end)
        if start < 0:  # the sentence holds a character that was replaced
            continue
        end = start + len(sentence)
        if not content_words(sentence) - content_words(question):
            continue  # the sentence says nothing that the question does not
        used = used_passages(sentence, cited, question)
        supports += [Support(start, end, passage.id) for passage in cited if passage.id in used]
    used_ids = {support.passage_id for support in supports}
    return supports + [Support(0, len(answer), passage.id) for passage in cited if passage.id not in used_ids]


_NEW_WORDS = 2
"""Words besides the question's, at least, that show a sentence to come from a passage."""
_MOST_SENTENCES = 200
"""Sentences of an answer that are looked at: a stranger's text may be nothing but full stops."""
_SHARE = 1 / 3
"""The share of a sentence's words; passages on the same subject have two or three in common with any sentence."""


class SentencePair(NamedTuple):
    """A sentence of an answer, and the sentence of a passage that supports it.

    Attributes:
        sentence: The sentence of the answer.
        passage_id: The id of the passage.
        passage_sentence: The sentence of the passage.
    """

    sentence: str
    passage_id: str
    passage_sentence: str


def supporting_sentences(answer: str, passages: Sequence[Passage], question: str) -> list[SentencePair]:
    """The sentences of passages that support each sentence of an answer, one a passage at most, best first.

    A sentence supports one of the answer if it holds a third of that one's content words, and at least two or the
    only one, not counting words of the question or of a better support.

    Example:
        >>> passages = [Passage("yeast", "Yeast is a fungus. Old yeast makes little gas."), Passage("cats", "Cats purr.")]
        >>> supporting_sentences("It is dense. The gas is little where yeast is old.", passages, "Why is bread dense?")
        [SentencePair(sentence='The gas is little where yeast is old.', passage_id='yeast', passage_sentence='Old yeast makes little gas.')]
    """  # noqa: E501
    question_words = content_words(question)
    sentences_of = {p.id: [(s, content_words(s)) for s in sentences(p.text)] for p in passages}
    supports: list[SentencePair] = []
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
                supports.append(SentencePair(sentence, passage_id, supporting))
                explained |= shared
    return supports


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
