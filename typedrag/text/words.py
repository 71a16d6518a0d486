"""The words that tell what a text is about; texts are compared by them without an LM."""

import re
import unicodedata
from functools import cache, lru_cache

import regex

SHORT_ANSWER_WORDS = 8
"""The most words of a short gold answer: for longer ones, no rule tells whether an answer includes it."""

# words that tell what is asked, but not about which subject
_FUNCTION_WORDS = frozenset(
    """a about all also an and any are as at be been being best but by can could did do does done for from
    get good had has have he her his how i if in into is it its make many me more most much my no not of on
    one or our out over she should so some such than that the their them then there these they this to too
    up us use used very was we were what when where which while who whom whose why will with would you your
    cause causes effect effects happen happens reason reasons way ways thing things""".split()
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# in scripts without spaces between words each letter counts as a word; a mark belongs to its letter
_SPACELESS = r"[\p{L}&&[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Thai}\p{scx=Laoo}\p{scx=Khmr}\p{scx=Mymr}]]"
_WORD = regex.compile(rf"(?V1){_SPACELESS}\p{{M}}*|[\p{{L}}\p{{Nd}}][[\p{{L}}\p{{M}}\p{{Nd}}]--{_SPACELESS}]*")


def encodable(text: str) -> str:
    """The text with a replacement character for each half of a surrogate pair: LMs write them, no file takes them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def printable(text: str) -> str:
    """The encodable text without control characters, which a terminal obeys; tabs and line ends stay.

    Example:
        >>> printable("\\x1b[31mred\\n")
        '[31mred\\n'
    """
    return _CONTROL.sub("", encodable(text))


_CHARACTERS_A_WORD = 12
"""Mean characters of a word, at most, in a text that is cut at words; English has 6 with the space."""
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
"""Letters of scripts without spaces: Thai, Lao, Tibetan, Burmese, Khmer, kana, Han."""
_UNSPACED_CHARACTERS = 4
"""Characters that such a letter counts as: three letters make a word, as they make about two tokens."""


def first_words(text: str, most: int) -> str:
    """The first words of a text; of a text without spaces, the beginning that takes about as many tokens.

    Example:
        >>> first_words("Yeast makes gas.", 2), first_words("Yeast makes gas.", 3)
        ('Yeast makes', 'Yeast makes gas.')
        >>> first_words("酵母使面包发起来", 2), len(first_words("U3VyZSwg" * 100, 2))
        ('酵母使面包发', 24)
    """
    words = text.split()
    begun = " ".join(words[:most]) if len(words) > most else text
    room = _CHARACTERS_A_WORD * most
    if len(begun) * _UNSPACED_CHARACTERS <= room:
        return begun
    for place, character in enumerate(begun):
        room -= _UNSPACED_CHARACTERS if _UNSPACED.match(character) else 1
        if room < 0:
            return begun[:place]
    return begun


def beginning(text: str, most: int) -> str:
    """The first words of a text, on one line, with dots if there are more."""
    line = " ".join(text.split())
    begun = first_words(line, most)
    return begun if begun == line else f"{begun} …"


NORMAL_FORM = "NFKC"
"""The name of the normal form, as the manifest of an index records it."""
_IGNORED = regex.compile(r"[\u00ad\u034f\u180e\u200b\u200d\u2060-\u2064\ufeff]|(?<!\p{Arabic})\u200c")
"""Soft hyphens and characters without width. Persian's non-joiner stays: it stands between the parts of a word."""


def normal_form(text: str) -> str:
    """The text in the form in which texts are searched and compared, however their characters were typed.

    Example:
        >>> normal_form("of\ufb01ce Zu\u0308rich \uff21\uff22 soft\u00adware")
        'office Zürich AB software'
    """
    return text if text.isascii() else _IGNORED.sub("", unicodedata.normalize("NFKC", text), concurrent=False)


def split_words(text: str) -> list[str]:
    """The words of a text in any script, in lower case and normal form, in order.

    Example:
        >>> split_words("Rachael's 1651-1674"), split_words("हिन्दी भाषा"), split_words("東京 2")
        (['rachael', 's', '1651', '1674'], ['हिन्दी', 'भाषा'], ['東', '京', '2'])
    """
    # regex lets other threads run while it searches a short text, and waiting for them takes longer than the search
    return _WORD.findall(normal_form(text).lower(), concurrent=False)


def folded(text: str) -> str:
    """The text without differences of case and spaces, to find the same text again."""
    return " ".join(text.casefold().split())


def question_key(question: str) -> str:
    """The characters that identify a question, without differences of case, spaces and closing marks.

    Example:
        >>> question_key("Why  is the sky blue?") == question_key("why is the sky Blue ")
        True
    """
    return folded(normal_form(question)).strip(" ?.!¿¡؟。") or question


@lru_cache(1024)  # the passages of an index are read again and again
def content_words(text: str) -> frozenset[str]:
    """The stems of the words that tell what a text is about.

    Example:
        >>> sorted(content_words("Why do the leaves of trees fall?"))
        ['fall', 'leav', 'tree']
    """
    import Stemmer

    stemmer = Stemmer.Stemmer("english", 0)  # not shared by threads, since it stores the word it is at work on
    return frozenset(stemmer.stemWords(list(set(split_words(text)) - _FUNCTION_WORDS)))


def ends_in_question_mark(text: str) -> bool:
    """True if a text ends in a question mark of any script, quotes, brackets and the like after it aside.

    Armenian puts its mark within the word that asks, so there the last sentence must have one. The Greek one looks
    like a semicolon, and is mostly typed as one.

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
    """True if a character ends no sentence: quotes, brackets, spaces, invisible ones, emphasis, emoji."""
    return character in _MAY_FOLLOW or unicodedata.category(character) not in ("Lo", "Ll", "Lu", "Lt", "Lm", "Nd", "Po")
