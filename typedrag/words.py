"""The words that say what a text is about: by them texts are compared without an LM."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
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


def ends_in_question_mark(text: str) -> bool:
    """Whether a text ends in a question mark of any script, with or without quotes, brackets or the like after it.

    Armenian sets its mark within the word that asks: there it is the last sentence that has one. Greek's
    looks like a semicolon, and is mostly typed as one.

    Example:
        >>> ends_in_question_mark('Why does bread rise?"'), ends_in_question_mark("«Γιατί;»")
        (True, True)
        >>> ends_in_question_mark('She asked: "Why?" and left.'), ends_in_question_mark("I came; I saw;")
        (False, False)
    """
    end = text
    while end and not _is_question_mark(end[-1]) and _may_follow(end[-1]):
        end = end[:-1]
    if not end:
        return False
    asks = _is_question_mark(end[-1]) or (end[-1] == ";" and _GREEK_WORD.search(end) is not None)
    return asks or _ARMENIAN_QUESTION.search(text) is not None


_GREEK_WORD = regex.compile(r"\p{Greek}{2}")
_ARMENIAN_QUESTION = regex.compile(r"՞[^։:.!]*[։:.!]*[^\p{L}\p{N}]*$")
_MAY_FOLLOW = frozenset("\"'*!" + "\uff02\uff07\uff01\u2032\u2033")


@cache
def _is_question_mark(character: str) -> bool:
    name = unicodedata.name(character, "")
    return ("QUESTION" in name or name == "INTERROBANG") and "INVERTED" not in name


@cache
def _may_follow(character: str) -> bool:
    """Whether it ends no sentence: quotes, brackets, spaces, what cannot be seen, emphasis, emoji and their parts."""
    return character in _MAY_FOLLOW or unicodedata.category(character) not in ("Lo", "Ll", "Lu", "Lt", "Lm", "Nd", "Po")


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
