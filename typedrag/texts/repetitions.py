"""What a text says again, as a small LM does until its tokens are used up; in any script."""

from __future__ import annotations

from collections.abc import Sequence

from typedrag.texts.sentences import sentences, without_item_number
from typedrag.texts.words import words_of

_SENTENCE_WORDS = 4
"""A shorter sentence may be said twice: "Let it dry." """
_ROUNDS = 8
"""So often the same characters follow one another at the end of a text that is in a loop; rows of tables have fewer."""
_ROUND_CHARACTERS = 4
"""Of shorter rounds there must be more: "hahaha"."""


def repeated_sentences(text: str) -> list[str]:
    """The sentences that say word for word what one before them said; a last one that breaks off may do so in part.

    The number of a list's item makes no difference, nor do case and marks. Sentences of less than
    `_SENTENCE_WORDS` words do not count, unless they are the end of a text that broke off among repeated ones.

    Example:
        >>> repeated_sentences("Yeast makes gas in dough. It rises. Yeast makes gas in dough! Yeast makes")
        ['Yeast makes gas in dough!', 'Yeast makes']
    """
    told = sentences(text)
    return [sentence for sentence, repeated in zip(told, _repeated(told), strict=True) if repeated]


def without_repetitions(text: str) -> str:
    """The text up to where nothing follows but sentences, or rounds of the same characters, that were there before.

    Example:
        >>> without_repetitions("Yeast makes gas in dough. It rises. Yeast makes gas in dough. Yeast makes")
        'Yeast makes gas in dough. It rises.'
        >>> without_repetitions("They are red, blue" + ", red, blue" * 9 + ", red, bl")
        'They are red, blue,'
    """
    told = sentences(text)
    repeated = _repeated(told)
    kept = text
    while told and repeated[len(told) - 1]:
        for _ in "".join(told.pop().split()):
            kept = kept.rstrip()[:-1]
    kept = kept.rstrip() if kept != text else text
    length, round_ = _loop(kept)
    return kept[: len(kept) - length + round_].rstrip() if length else kept


def _repeated(told: Sequence[str]) -> list[bool]:
    """Of each sentence whether it was said before."""
    seen: set[str] = set()
    found: list[bool] = []
    for sentence in told:
        words = words_of(without_item_number(sentence))
        key = " ".join(words)
        breaks_off = len(found) == len(told) - 1 and sentence[-1].isalnum()
        enough = len(words) >= _SENTENCE_WORDS or (breaks_off and found[-1:] == [True] and words != [])
        found.append(enough and (key in seen or (breaks_off and any(known.startswith(key) for known in seen))))
        seen.add(key)
    return found


def _loop(text: str) -> tuple[int, int]:
    """How many characters at the end of a text are rounds of the same ones, and how many a round has; else zeros.

    A text that is a loop from its beginning has a border of all but one round (Knuth, Morris and Pratt's failure
    function): it is looked for from the end.
    """
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
