"""The words that say what a text is about: by them texts are compared without an LM."""

from __future__ import annotations

import unicodedata
from typing import Any

import regex

# words that say what is asked, not what about
_FUNCTION_WORDS = frozenset(
    """a about all also an and any are as at be been being best but by can could did do does done for from
    get good had has have he her his how i if in into is it its make many me more most much my no not of on
    one or our out over she should so some such than that the their them then there these they this to too
    up us use used very was we were what when where which while who whom whose why will with would you your
    cause causes effect effects happen happens reason reasons way ways thing things""".split()
)
# in scripts that put no spaces between words each letter counts as one; a mark belongs to what it stands on
_SPACELESS = r"[\p{L}&&[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Thai}\p{scx=Laoo}\p{scx=Khmr}\p{scx=Mymr}]]"
_WORD = regex.compile(rf"(?V1){_SPACELESS}\p{{M}}*|[\p{{L}}\p{{Nd}}][[\p{{L}}\p{{M}}\p{{Nd}}]--{_SPACELESS}]*")


def encodable(text: str) -> str:
    """The text, with a replacement character for each half of a surrogate pair: LMs write them, no file holds them.

    Example:
        >>> encodable("a smile: \\ud83d")
        'a smile: �'
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def words_of(text: str) -> list[str]:
    """The words of a text in any script, in lower case and composed, in their order.

    Example:
        >>> words_of("Rachael's 1651-1674"), words_of("हिन्दी भाषा"), words_of("東京 2")
        (['rachael', 's', '1651', '1674'], ['हिन्दी', 'भाषा'], ['東', '京', '2'])
    """
    return _WORD.findall(unicodedata.normalize("NFC", text.lower()))


def content_words(text: str) -> frozenset[str]:
    """The stems of the words that say what a text is about.

    Example:
        >>> sorted(content_words("Why do the leaves of trees fall?"))
        ['fall', 'leav', 'tree']
    """
    return frozenset(_stemmer().stemWords(list(set(words_of(text)) - _FUNCTION_WORDS)))


def _stemmer() -> Any:
    # one for each use: it keeps the word it is at work on, so that threads cannot share it
    import Stemmer

    return Stemmer.Stemmer("english", 0)
