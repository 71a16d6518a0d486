"""Which sentence of a passage supports a sentence of an answer? By their words, without an LM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from typedrag.records import Passage
from typedrag.texts.sentences import sentences
from typedrag.texts.words import content_words

_NEW_WORDS = 2
_MOST_SENTENCES = 200
"""Of an answer, that support is looked for: a stranger's text may be nothing but full stops."""
_SHARE = 1 / 3
"""Of the words of a sentence; passages on the same subject have two or three in common with any."""


class Support(NamedTuple):
    """A sentence of an answer, and the sentence of a passage that says the same.

    Attributes:
        sentence: Of the answer.
        passage_id: Where its support stands.
        passage_sentence: The support.
    """

    sentence: str
    passage_id: str
    passage_sentence: str


def supporting_sentences(answer: str, passages: Sequence[Passage], question: str) -> list[Support]:
    """For each sentence of an answer the sentences of passages that support it, one a passage at most, best first.

    A sentence counts as support if it holds a third of the content words of the answer's sentence, and at least two or
    the only one, that neither the question nor a better support has.

    Example:
        >>> passages = [Passage("yeast", "Yeast is a fungus. Old yeast makes little gas."), Passage("cats", "Cats purr.")]
        >>> supporting_sentences("It is dense. The gas is little where yeast is old.", passages, "Why is bread dense?")
        [Support(sentence='The gas is little where yeast is old.', passage_id='yeast', passage_sentence='Old yeast makes little gas.')]
    """  # noqa: E501
    asked = content_words(question)
    told = {p.id: [(s, content_words(s)) for s in sentences(p.text)] for p in passages}
    found: list[Support] = []
    for sentence in list(dict.fromkeys(sentences(answer)))[:_MOST_SENTENCES]:
        words = content_words(sentence) - asked
        best = [
            (passage_id, *max(((s, words & of) for s, of in said), key=lambda pair: len(pair[1])))
            for passage_id, said in told.items()
            if said and words
        ]
        explained: frozenset[str] = frozenset()
        for passage_id, supporting, shared in sorted(best, key=lambda entry: -len(entry[2])):
            if len(shared - explained) >= max(min(_NEW_WORDS, len(words)), _SHARE * len(words)):
                found.append(Support(sentence, passage_id, supporting))
                explained |= shared
    return found
