"""The words that say what a text is about: by them texts are compared without an LM."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

# words that say what is asked, not what about
_FUNCTION_WORDS = frozenset(
    """a about all also an and any are as at be been being best but by can could did do does done for from
    get good had has have he her his how i if in into is it its make many me more most much my no not of on
    one or our out over she should so some such than that the their them then there these they this to too
    up us use used very was we were what when where which while who whom whose why will with would you your
    cause causes effect effects happen happens reason reasons way ways thing things""".split()
)
_NO_WORD = re.compile(r"[^a-z0-9]")


def encodable(text: str) -> str:
    """The text, with a replacement character for each half of a surrogate pair: LMs write them, no file holds them.

    Example:
        >>> encodable("a smile: \\ud83d")
        'a smile: �'
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def question_key(question: str) -> str:
    """What makes a question another than others: its characters, whatever their case, spaces and closing marks.

    Example:
        >>> question_key("Why  is the sky blue?") == question_key("why is the sky Blue ")
        True
    """
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split()).strip(" ?.!¿¡؟。") or question


def content_words(text: str) -> frozenset[str]:
    """The stems of the words that say what a text is about.

    Example:
        >>> sorted(content_words("Why do the leaves of trees fall?"))
        ['fall', 'leav', 'tree']
    """
    words = set(_NO_WORD.sub(_spaced, text.lower()).split())
    return frozenset(_stemmer().stemWords(list(words - _FUNCTION_WORDS)))


def _spaced(match: re.Match[str]) -> str:
    character = match[0]
    if not character.isalnum():
        return " "
    # letters without case belong to scripts that often do without spaces: each counts as a word
    return f" {character} " if unicodedata.category(character) == "Lo" else character


def _stemmer() -> Any:
    # one for each use: it keeps the word it is at work on, so that threads cannot share it
    import Stemmer

    return Stemmer.Stemmer("english", 0)
