"""Where a fragment that a judge quotes stands in a text, if it stands there at all."""

from __future__ import annotations

import string
import unicodedata
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate

NEARLY = 90.0
"""How alike a fragment and a stretch of text must be, in percent (rapidfuzz's `ratio`).

Measured on the 45 fragments that people marked for the paper, which stand in their answers exactly:
with a word left out or replaced all stay above it, with two left out 95 in 100, with every fifth
replaced few; what other answers to the same question say on the matter reaches 63."""

_AROUND = string.punctuation + "… "
"""What a judge may put around a fragment that it quotes."""
_SLACK = 3
"""How many words an alignment of letters may be off at either end."""
_SAME = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′`´", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("*_#\u00ad\u200b", None),  # marks of Markdown and what cannot be seen
    }
)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a fragment stands in a text.

    Attributes:
        first: Its first word, from 1.
        last: Its last word.
        words: How many words the text has.
        similarity: To the fragment, in percent: 100 if it stands there as it is.
    """

    first: int
    last: int
    words: int
    similarity: float

    @property
    def position(self) -> float:
        """Where it begins, as a share of the text's words: 0.2 for the 20th of 100 words."""
        return self.first / self.words


def locate_fragment(text: str, fragment: str, nearly: float = NEARLY) -> Location | None:
    """Where a fragment stands in a text: the first place where it stands exactly, else the most alike.

    Case, whitespace, the forms of quotes and dashes, and Markdown's marks make no difference, nor
    do quotes and dots around the fragment. It stands there in whole words.

    Args:
        text: An answer or a passage.
        fragment: What is said to stand in it.
        nearly: The least similarity, in percent, see `NEARLY`.

    Returns:
        None if it does not stand there, or is empty.

    Example:
        >>> locate_fragment("Leaves  turn red. They hold “less” chlorophyll.", 'they hold "less"')
        Location(first=4, last=6, words=7, similarity=100.0)
        >>> locate_fragment("Leaves turn red.", "the sky is blue") is None
        True
        >>> locate_fragment("We start now.", "art") is None
        True
    """
    from rapidfuzz import fuzz

    said = [_normalize(word) for word in text.split()]
    wanted = " ".join(_normalize(fragment).split()).strip(_AROUND)
    if not wanted or not said:
        return None
    haystack = " ".join(said)
    begins = [0, *accumulate(len(word) + 1 for word in said)]  # of each word in the haystack
    if (start := _find_whole_words(haystack, wanted)) is not None:
        return _location(begins, start, start + len(wanted), 100.0)
    near = fuzz.partial_ratio_alignment(wanted, haystack)
    if near is None:
        return None
    # that stretch is as long as the fragment and may begin within a word: the best whole words are near it
    found = _location(begins, near.dest_start, near.dest_end, 0.0)
    options = (
        Location(first, last, found.words, fuzz.ratio(wanted, " ".join(said[first - 1 : last]).strip(_AROUND)))
        for first in range(max(found.first - _SLACK, 1), min(found.first + _SLACK, found.words) + 1)
        for last in range(max(found.last - _SLACK, first), min(found.last + _SLACK, found.words) + 1)
    )
    best = max(options, key=lambda option: option.similarity)
    return best if best.similarity >= nearly else None


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().translate(_SAME)


def _find_whole_words(haystack: str, wanted: str) -> int | None:
    start = haystack.find(wanted)
    while start >= 0:
        before, after = haystack[start - 1 : start], haystack[start + len(wanted) : start + len(wanted) + 1]
        if not before.isalnum() and not after.isalnum():
            return start
        start = haystack.find(wanted, start + 1)
    return None


def _location(begins: list[int], start: int, end: int, similarity: float) -> Location:
    return Location(bisect_right(begins, start), bisect_left(begins, end), len(begins) - 1, similarity)
