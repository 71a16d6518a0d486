"""Repetitions in a text, such as a small LM writes until its tokens are used up; in any script."""

from __future__ import annotations

import re
from collections.abc import Sequence

from typedrag.text.sentences import sentences, without_item_number
from typedrag.text.words import split_words

_SENTENCE_WORDS = 4
"""The words of a sentence that may not be repeated, at least; shorter ones may: "Let it dry." """
_ROUNDS = 8
"""Rounds of the same characters that make a loop at the end of a text; rows of tables have fewer."""
_ROUND_CHARACTERS = 4
"""Characters of a round, at least; shorter ones are counted as this long: "hahaha"."""


def repeated_sentences(text: str) -> list[str]:
    """The sentences that repeat an earlier one word for word; the last one may break off and repeat it in part.

    The number of a list's item makes no difference, nor do case and marks. Sentences of fewer than
    `_SENTENCE_WORDS` words do not count, except the last of a text that broke off among repeated ones.

    Example:
        >>> repeated_sentences("Yeast makes gas in dough. It rises. Yeast makes gas in dough! Yeast makes")
        ['Yeast makes gas in dough!', 'Yeast makes']
    """
    parts = sentences(text)
    return [sentence for sentence, repeated in zip(parts, _repeated(parts), strict=True) if repeated]


def without_repetitions(text: str) -> str:
    """The text without its end, if that only repeats earlier sentences or rounds of the same characters.

    Example:
        >>> without_repetitions("Yeast makes gas in dough. It rises. Yeast makes gas in dough. Yeast makes")
        'Yeast makes gas in dough. It rises.'
        >>> without_repetitions("They are red, blue" + ", red, blue" * 9 + ", red, bl")
        'They are red, blue,'
    """
    parts = sentences(text)
    repeated = _repeated(parts)
    count = len(parts)
    while count and repeated[count - 1]:
        count -= 1
    rest, signs = text, sum(map(len, "".join(parts[count:]).split()))
    for word in reversed(list(re.finditer(r"\S+", text)) if signs else []):  # whitespace may differ from the text's
        if len(word[0]) >= signs:
            rest = text[: word.end() - signs].rstrip()
            break
        signs -= len(word[0])
    length, round_ = _loop(rest)
    return rest[: len(rest) - length + round_].rstrip() if length else rest


def _repeated(parts: Sequence[str]) -> list[bool]:
    """Truth values of the sentences: True for one that was said before."""
    keys: set[str] = set()
    repeated: list[bool] = []
    for sentence in parts:
        words = split_words(without_item_number(sentence))
        key = " ".join(words)
        breaks_off = len(repeated) == len(parts) - 1 and sentence[-1].isalnum()
        enough = len(words) >= _SENTENCE_WORDS or (breaks_off and repeated[-1:] == [True] and words != [])
        repeated.append(enough and (key in keys or (breaks_off and any(known.startswith(key) for known in keys))))
        keys.add(key)
    return repeated


def _loop(text: str) -> tuple[int, int]:
    """The length of the rounds of the same characters that end a text, and that of one round; zeros without a loop.

    A text that is a loop from its beginning has a border of all but one round (Knuth, Morris and Pratt's failure
    function). The search therefore runs backwards from the text's end.
    """
    if text.count(text[-_ROUND_CHARACTERS:]) < _ROUNDS // 2:  # what most texts end with is not said so often
        return 0, 0
    signs = text[::-1]
    borders, border, longest = [0], 0, (0, 0)
    for place in range(1, len(signs)):
        while border and signs[place] != signs[border]:
            border = borders[border - 1]
        border += signs[place] == signs[border]
        borders.append(border)
        length, round_ = place + 1, place + 1 - border
        if length >= _ROUNDS * max(round_, _ROUND_CHARACTERS):
            longest = (length, round_)
    return longest if any(sign.isalpha() for sign in text[len(text) - longest[0] :]) else (0, 0)
