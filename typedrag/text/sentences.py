"""The sentences of a text in any script; answers are cited, compared and judged by them."""

from __future__ import annotations

import regex
from sentencex import segment

from typedrag.text.words import encodable

_ITEM_NUMBER = regex.compile(r"^\W*\p{Nd}+(?:[.):]\s+|、)")


def sentences(text: str) -> list[str]:
    """The sentences of a text, line by line; a piece without letters, such as a number, belongs to the next.

    Example:
        >>> sentences("Yeast makes gas. Dough rises!\\n1. Knead it.\\n2. Bake it")
        ['Yeast makes gas.', 'Dough rises!', '1. Knead it.', '2. Bake it']
        >>> sentences("酵母产生气体。面团发起来。"), sentences("खमीर गैस बनाता है। आटा फूलता है।")
        (['酵母产生气体。', '面团发起来。'], ['खमीर गैस बनाता है।', 'आटा फूलता है।'])
    """
    whole: list[str] = []
    for line in encodable(text).splitlines():
        begun = ""
        for piece in filter(str.strip, segment("en", line)):  # English abbreviations, but the ends of all languages
            begun += piece
            if any(letter.isalpha() for letter in piece):
                whole.append(begun.strip())
                begun = ""
        if begun.strip():
            whole.append(begun.strip())
    return whole


def without_item_number(sentence: str) -> str:
    """A sentence without its number in a list.

    Example:
        >>> without_item_number("2. Bake it."), without_item_number("2.5 cups of flour.")
        ('Bake it.', '2.5 cups of flour.')
    """
    return _ITEM_NUMBER.sub("", sentence, concurrent=False)
