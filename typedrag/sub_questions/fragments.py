"""Locating in a text the fragment that a judge quotes, if it is there."""

from __future__ import annotations

import string
import unicodedata
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate

NEARLY = 90.0
"""The similarity that a fragment and a stretch of text must have, in percent (rapidfuzz's `ratio`).

Measured on the 45 fragments that people marked for the paper and that are literally in their answers. With one
word left out or replaced, all stay above it; with two left out, 95 in 100 do; with every fifth replaced,
few do. What other answers to the same question say on the matter reaches 63."""

_AROUND = string.punctuation + "… "
"""Characters that a judge may put around a fragment that it quotes."""
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


@dataclass(frozen=True, slots=True)
class Location:
    """The place of a fragment in a text.

    Attributes:
        first: Its first word, counted from 1.
        last: Its last word.
        words: The number of words in the text.
        similarity: The similarity to the fragment, in percent: 100 for an exact match.
    """

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
    do quotes and dots around the fragment. A match consists of whole words.

    Args:
        text: An answer or a passage.
        fragment: The words to find in it.
        nearly: The least similarity, in percent, see `NEARLY`.

    Returns:
        None if the fragment is not in the text, or is empty.

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
    if (start := _find_whole_words(haystack, needle)) is not None:
        return _location(begins, start, start + len(needle), 100.0)
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
    return unicodedata.normalize("NFKC", text).casefold().translate(_SAME)


def _find_whole_words(haystack: str, needle: str) -> int | None:
    start = haystack.find(needle)
    while start >= 0:
        before, after = haystack[start - 1 : start], haystack[start + len(needle) : start + len(needle) + 1]
        if not before.isalnum() and not after.isalnum():
            return start
        start = haystack.find(needle, start + 1)
    return None


def _location(begins: list[int], start: int, end: int, similarity: float) -> Location:
    return Location(bisect_right(begins, start), bisect_left(begins, end), len(begins) - 1, similarity)
