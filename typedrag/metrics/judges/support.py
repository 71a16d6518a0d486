"""Whether sources support an answer's sentences, by the embeddings and the words of both: no LM is asked.

A sentence is near a source if a sentence of it is near in meaning. Being near says that both are on the same
matter; that they agree on it is told by words. Names and negations are looked for as English writes them. The
thresholds were set on half of the questions of Wiki-NFQA: `benchmarks/support.py` measures them on the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Protocol

from typedrag.metrics.judges.short_gold import in_digits
from typedrag.retrieval.cosines import cosines
from typedrag.retrieval.rerank.rerankers import BI_ENCODER
from typedrag.signatures.support import SupportVerdict
from typedrag.texts.sentences import sentences, without_item_number
from typedrag.texts.words import content_words, words_of

NEAR = 0.6
"""The least cosine of two sentences on the same matter."""
SHARED = 0.25
"""The least share, of the words that a sentence adds to the question, which its sources have."""
ALMOST_THE_SAME = 0.85
"""From this cosine on, two sentences of which one denies speak against each other."""
MOST_EXCHANGED = 5
"""Content words that stand in one place: more are another thought."""

FRAGMENT = 5
"""Words of a sentence that by itself may say too little to be near another: it is read after the question as well."""

_LEAST_NUMERAL = 3
_QUOTED = re.compile(r"[\"“«]([^\"”»]{1,60})[\"”»]")
_WORD = re.compile(r"\w+")
_DENIES = {"not", "no", "never", "none", "neither", "nor", "without", "cannot", "nothing", "nobody", "t"}
"""In the words of a text; "t" is what "don't" ends in."""


class Support(Protocol):
    """Says what sources say of sentences."""

    def verdicts(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> list[SupportVerdict]:
        """What the sources, of which there is at least one, say of each sentence.

        Raises:
            StepFailed: If an LM is asked and its reply cannot be read.
            Unavailable: If a model cannot be used.
        """
        ...


class EmbeddingSupport:
    """Goes by a bi-encoder, names, numbers and words.

    A sentence is

    - supported, if it is near a source's (a fragment may be so with the question before it), all numbers, names and
      quoted terms in it are in the question or the sources, and so is a share of the words that it adds to the
      question; unless the two are almost the same, and one denies;
    - contradicted, if it is not supported, but near a source's, and has another number, name or quoted term in the
      place of what stands there;
    - not stated otherwise.

    Args:
        model: See `cosines`.
    """

    def __init__(self, model: str = BI_ENCODER) -> None:
        self.model = model

    def verdicts(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> list[SupportVerdict]:
        """See `Support.verdicts`."""
        parts = [part for source in sources for part in _sentences(source)]
        known = " ".join(sources)
        return [self._verdict(without_item_number(sentence), question, parts, known) for sentence in sentences]

    def _verdict(self, sentence: str, question: str, parts: Sequence[str], known: str) -> SupportVerdict:
        readings = [sentence] if len(sentence.split()) > FRAGMENT else [sentence, f"{question} {sentence}"]
        near = ((c, part) for text in readings for c, part in zip(cosines(text, parts, self.model), parts, strict=True))
        cosine, nearest = max(near, default=(0.0, ""))
        if cosine < NEAR:
            return SupportVerdict.NOT_STATED
        if cosine >= ALMOST_THE_SAME and _denies(sentence) != _denies(nearest):
            return SupportVerdict.CONTRADICTED
        new = particulars(sentence, f"{question} {known}")
        if not new and shared_words(sentence, question, known) >= SHARED:
            return SupportVerdict.SUPPORTED
        exchanged = new and _stands_for_another(new, sentence, nearest, question)
        return SupportVerdict.CONTRADICTED if exchanged else SupportVerdict.NOT_STATED


def particulars(sentence: str, known: str) -> frozenset[str]:
    """The numbers, names and quoted terms of a sentence that a text does not have, word by word.

    What stands first in a sentence is a name if the next word is one.

    Example:
        >>> sorted(particulars('Aksel Sandemose wrote "ljaante" in 1933. Later he moved.', "By Aksel, later."))
        ['1933', 'ljaante', 'sandemose']
    """
    had = _content(known)
    sentence = _plain(sentence)
    words = list(_WORD.finditer(sentence))
    named = {w for quote in _QUOTED.findall(sentence) for w in words_of(quote)}
    for word, following in zip(words, [*(w[0] for w in words[1:]), ""], strict=False):
        name = word[0][0].isupper() and (following[:1].isupper() or not _begins_sentence(sentence, word.start()))
        if name or any(character.isdigit() for character in word[0]):
            named.add(word[0].lower())
    return frozenset(word for word in named if not content_words(word) <= had)


def shared_words(sentence: str, question: str, known: str) -> float:
    """The share of the words that a sentence adds to a question which a text has; 1 if it adds none.

    Example:
        >>> shared_words("A group of larks is an exaltation.", "What is a group of larks?", "They say a flock.")
        0.0
    """
    added = _content(sentence) - _content(question)
    return len(added & _content(known)) / len(added) if added else 1.0


def _stands_for_another(new: frozenset[str], sentence: str, source: str, question: str) -> bool:
    """Whether one of the words stands where the source has something else that neither sentence nor question has."""
    ours, theirs = words_of(_plain(sentence)), words_of(_plain(source))
    said = _content(sentence) | _content(question)
    for kind, start, end, other_start, other_end in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        here, there = (content_words(" ".join(w)) for w in (ours[start:end], theirs[other_start:other_end]))
        if (
            kind == "replace"
            and max(len(here), len(there)) <= MOST_EXCHANGED
            and there - said
            and new & {*ours[start:end]}
        ):
            return True
    return False


def _sentences(source: str) -> list[str]:
    return [without_item_number(sentence) for sentence in sentences(source)]


@lru_cache(4096)
def _content(text: str) -> frozenset[str]:
    return content_words(_plain(text))


def _plain(text: str) -> str:
    """With digits for numerals, and none of the marks between digits."""
    return re.sub(r"(?<=\d)[.,](?=\d)", "", in_digits(text, _LEAST_NUMERAL))


def _begins_sentence(text: str, place: int) -> bool:
    before = text[:place].rstrip(" \"'“«(*")
    return not before or before[-1] in ".!?:\n"


def _denies(sentence: str) -> bool:
    return sum(word in _DENIES for word in words_of(sentence)) % 2 == 1
