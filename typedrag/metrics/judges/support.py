"""Support of an answer's sentences by sources, by the embeddings and words of both; no LM is asked.

A sentence is near a source if it is near one of its sentences in meaning. Near sentences are on the same matter;
whether they agree is decided by words. Names and negations are found as English writes them. The thresholds were
set on half of the questions of Wiki-NFQA: `benchmarks/support.py` measures them on the other half.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Protocol

from typedrag.metrics.judges.short_gold import in_digits
from typedrag.retrieval.rerankers import BI_ENCODER, cosines
from typedrag.signatures.judging import SupportVerdict
from typedrag.text.sentences import sentences, without_item_number
from typedrag.text.words import content_words, split_words

NEAR = 0.6
"""The least cosine of two sentences on the same matter."""
SHARED = 0.25
"""The least share of the words a sentence adds to the question that its sources must have."""
ALMOST_THE_SAME = 0.85
"""The least cosine at which two sentences contradict each other if one of them is negated."""
MOST_EXCHANGED = 5
"""The most content words that replace others in one place: more are another thought."""

FRAGMENT = 5
"""The most words of a fragment, which may say too little by itself to be near a sentence: it is also read after the
question."""

_LEAST_NUMERAL = 3
_QUOTED = re.compile(r"[\"“«]([^\"”»]{1,60})[\"”»]")
_WORD = re.compile(r"\w+")
_DENIES = {"not", "no", "never", "none", "neither", "nor", "without", "cannot", "nothing", "nobody", "t"}
"""Words that negate a sentence; "t" is the end of "don't"."""


class Support(Protocol):
    """Judges the support of sentences by sources."""

    def verdicts(self, question: str, sentences: Sequence[str], sources: Sequence[str]) -> list[SupportVerdict]:
        """The verdict on each sentence by the sources, at least one."""
        ...


class EmbeddingSupport:
    """Judges by a bi-encoder, names, numbers and words.

    A sentence is

    - supported, if it is near a source (a fragment also with the question before it), its numbers, names and quoted
      terms are all in the question or the sources, and so are enough of the words that it adds to the question;
    - contradicted, if it is almost the same as a source's sentence but one of the two is negated; or if it is not
      supported, but near a source, and has another number, name or quoted term in the same place;
    - otherwise not stated.

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
    """The words of a sentence's numbers, names and quoted terms that a text lacks.

    The first word of a sentence is a name if the next word is one.

    Example:
        >>> sorted(particulars('Aksel Sandemose wrote "ljaante" in 1933. Later he moved.', "By Aksel, later."))
        ['1933', 'ljaante', 'sandemose']
    """
    had = _content(known)
    sentence = _plain(sentence)
    words = list(_WORD.finditer(sentence))
    named = {w for quote in _QUOTED.findall(sentence) for w in split_words(quote)}
    for word, following in zip(words, [*(w[0] for w in words[1:]), ""], strict=False):
        name = word[0][0].isupper() and (following[:1].isupper() or not _begins_sentence(sentence, word.start()))
        if name or any(character.isdigit() for character in word[0]):
            named.add(word[0].lower())
    return frozenset(word for word in named if not content_words(word) <= had)


def shared_words(sentence: str, question: str, known: str) -> float:
    """The share that a text has of the words that a sentence adds to a question; 1 if it adds none.

    Example:
        >>> shared_words("A group of larks is an exaltation.", "What is a group of larks?", "They say a flock.")
        0.0
    """
    added = _content(sentence) - _content(question)
    return len(added & _content(known)) / len(added) if added else 1.0


def _stands_for_another(new: frozenset[str], sentence: str, source: str, question: str) -> bool:
    """True if the source has, in the place of one of the words, something that neither sentence nor question has."""
    ours, theirs = split_words(_plain(sentence)), split_words(_plain(source))
    known = _content(sentence) | _content(question)
    for kind, start, end, other_start, other_end in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        here, there = (content_words(" ".join(w)) for w in (ours[start:end], theirs[other_start:other_end]))
        if (
            kind == "replace"
            and max(len(here), len(there)) <= MOST_EXCHANGED
            and there - known
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
    """The text with numerals as digits, and without the marks between digits."""
    return re.sub(r"(?<=\d)[.,](?=\d)", "", in_digits(text, _LEAST_NUMERAL))


def _begins_sentence(text: str, place: int) -> bool:
    before = text[:place].rstrip(" \"'“«(*")
    return not before or before[-1] in ".!?:\n"


def _denies(sentence: str) -> bool:
    return sum(word in _DENIES for word in split_words(sentence)) % 2 == 1
