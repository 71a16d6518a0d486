"""Evidence, without an LM, that a text answers a sub-question, and the place of the fragment that answers it."""

import re
import string
from bisect import bisect_left, bisect_right
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from typedrag.retrieval.rerankers import cosines
from typedrag.text.sentences import sentences
from typedrag.text.words import content_words, normal_form


class Evidence(NamedTuple):
    """Evidence that a text answers a sub-question: nearness in meaning, words in common, and a thing of the kind that
    is asked for."""

    fragment: str
    """The two consecutive sentences nearest in meaning: an answer that one begins, the next often ends."""
    sentence: float
    """The cosine between the sub-question and the nearest sentence."""
    two_sentences: float
    """Its cosine with the fragment."""
    text: float
    """Its cosine with the whole text, or its first 200 words. If all is on the subject, a near one means less."""
    words: float
    """The share of the sub-question's content words that are in the text."""
    kind: float
    """1 if the fragment has something of the kind that is asked for, such as a number for *how many*, -1 if it has not,
    0 if no kind is asked for."""

    @property
    def features(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in FEATURES}


FEATURES = Evidence._fields[1:]

_NUMBER = (
    r"\d|\b(one|two|three|four|five|six|seven|eight|nine|ten|dozens?|half|hundreds?|thousands?|millions?|billions?"
    r"|percent|several|many)\b"
)
_DATE = (
    r"\b(1\d{3}|20\d\d)\b|\b(january|february|march|april|may|june|july|august|september|october|november|december"
    r"|century|centuries|years?|months?|weeks?|days?|ago|today|since|until|during|before|after)\b"
)
_CAUSE = (
    r"\b(because|due to|since|caused?|causes|results?|resulted|resulting|reasons?|leads?|leading|therefore|so that|thus"
    r"|helps?|in order)\b"
)
_NAME = r"(?<!^)(?<![.!?] )\b[A-Z][a-z]+"
_KINDS = tuple(
    (re.compile(cue, re.IGNORECASE), re.compile(kind, flags))
    for cue, kind, flags in (
        (
            r"\bhow (many|much|long|often|old|far|tall|big|large|fast|high|deep|hot|cold|heavy)\b"
            r"|\bwhat (percent|number|amount|age)",
            _NUMBER,
            re.IGNORECASE,
        ),
        (r"\bwhen\b|\bwhat (year|date|century|day)", _DATE, re.IGNORECASE),
        (r"\bwho(se|m)?\b", _NAME, re.NOFLAG),
        (r"\bwhy\b|\bcauses?\b|\breasons?\b", _CAUSE, re.IGNORECASE),
    )
)
"""Patterns of English words that ask for a kind, each with the pattern of that kind, and its flags."""


@lru_cache(4096)  # other weights and other answers from the same passages ask again
def find_evidence(text: str, sub_questions: tuple[str, ...]) -> tuple[Evidence, ...]:
    """The evidence that a text of at least one sentence answers each of these sub-questions."""
    single = sentences(text)
    double = [f"{one} {next_one}" for one, next_one in pairwise(single)] or single
    known = content_words(text)
    evidence = []
    for sub_question in sub_questions:
        near = cosines(sub_question, [*single, *double, text])
        to_single, to_double, to_text = near[: len(single)], near[len(single) : -1], near[-1]
        words, fragment = content_words(sub_question), double[to_double.index(max(to_double))]
        shared = len(words & known) / max(1, len(words))
        kind = find_kind(sub_question, fragment)
        evidence.append(Evidence(fragment, max(to_single), max(to_double), to_text, shared, kind))
    return tuple(evidence)


def find_kind(sub_question: str, text: str) -> float:
    """1 if a text has something of the kind that is asked for, else -1, or 0; see `Evidence.kind`."""
    for cue, kind in _KINDS:
        if cue.search(sub_question):
            return 1.0 if kind.search(text) else -1.0
    return 0.0


NEARLY = 90.0
"""The similarity that a fragment and a stretch of text must have, in percent (rapidfuzz's `ratio`).

Measured on the 45 fragments that people marked for the paper and that are literally in their answers. With one
word left out or replaced, all stay above it; with two left out, 95 in 100 do; with every fifth replaced,
few do. What other answers to the same question say on the matter reaches 63."""

_AROUND = string.punctuation + "… "
_SLACK = 3
"""Words by which an alignment of letters may be off at either end."""
_SAME = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′`´", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("*_#\u00ad\u200b", None),  # Markdown's marks and invisible characters
    }
)


class Location(NamedTuple):
    """The place of a fragment among the words of a text, counted from 1, and its similarity in percent."""

    first: int
    last: int
    words: int
    similarity: float

    @property
    def position(self) -> float:
        """The beginning, as a share of the text's words: 0.2 for the 20th of 100 words."""
        return self.first / self.words


def locate_fragment(text: str, fragment: str, nearly: float = NEARLY) -> Location | None:
    """The place of a fragment in a text: the first exact match, else the most similar stretch.

    Case, whitespace, the forms of quotes and dashes, and Markdown's marks make no difference, nor
    do quotes and dots around the fragment. A match consists of whole words. None if there is none of at least `nearly`.

    Example:
        >>> locate_fragment("Leaves  turn red. They hold “less” chlorophyll.", 'they hold "less"')
        Location(first=4, last=6, words=7, similarity=100.0)
        >>> locate_fragment("Leaves turn red.", "the sky is blue") is None
        True
        >>> locate_fragment("We start now.", "art") is None
        True
    """
    from rapidfuzz import fuzz

    words = [_normalize(word) for word in text.split()]
    needle = " ".join(_normalize(fragment).split()).strip(_AROUND)
    if not needle or not words:
        return None
    haystack = " ".join(words)
    begins = [0, *accumulate(len(word) + 1 for word in words)]  # the start of each word in the haystack
    if exact := re.search(rf"(?<!\w){re.escape(needle)}(?!\w)", haystack):
        return _location(begins, exact.start(), exact.end(), 100.0)
    near = fuzz.partial_ratio_alignment(needle, haystack)
    if near is None:
        return None
    # the aligned stretch is as long as the fragment and may begin within a word: the best whole words are near it
    rough = _location(begins, near.dest_start, near.dest_end, 0.0)
    options = (
        Location(first, last, rough.words, fuzz.ratio(needle, " ".join(words[first - 1 : last]).strip(_AROUND)))
        for first in range(max(rough.first - _SLACK, 1), min(rough.first + _SLACK, rough.words) + 1)
        for last in range(max(rough.last - _SLACK, first), min(rough.last + _SLACK, rough.words) + 1)
    )
    best = max(options, key=lambda option: option.similarity)
    return best if best.similarity >= nearly else None


def _normalize(text: str) -> str:
    return normal_form(text).casefold().translate(_SAME)


def _location(begins: list[int], start: int, end: int, similarity: float) -> Location:
    return Location(bisect_right(begins, start), bisect_left(begins, end), len(begins) - 1, similarity)
