"""What an English sentence says to be more or less something, and which of two such claims cannot both be true."""

from __future__ import annotations

import re
from typing import NamedTuple

from typedrag.texts.words import content_words, words_of

_CLAUSES = re.compile(r"[,;:()–—]|\b(?:while|whereas|but|however|although|though)\b", re.IGNORECASE)
_PARTS = re.compile(r"\b(?:and|or)\b", re.IGNORECASE)
_REASON = frozenset("because since as due so which who that when if".split())
_IRREGULAR = {"better": ("good", True), "worse": ("good", False), "fewer": ("", False)}
_BEFORE = frozenset(
    """is are be was were been being become becomes became seems seem much far even slightly generally usually often
    also typically considerably significantly still always mostly somewhat""".split()
)
"""After which a word in -er compares."""
_NOUNS = frozenset(
    """water paper power silver rubber leather timber fiber fibre winter summer corner matter order other another
    either neither rather together whether over under after never ever former latter super proper per number user
    later however letter sister brother mother father her inner outer upper consumer computer""".split()
)


class Claim(NamedTuple):
    """That something is more or less than something else.

    Attributes:
        subject: The stems of what it says it of.
        attribute: The stem of what that is more of.
        more: Or less.
        rest: What else is said of it, such as when.
        than: The stems of what it is compared with; empty where that is not said.
    """

    subject: frozenset[str]
    attribute: str
    more: bool
    rest: frozenset[str]
    than: frozenset[str]


def claims(sentence: str) -> list[Claim]:
    """The claims of a sentence; what is joined by "and" shares its subject.

    Example:
        >>> [(sorted(c.subject), c.attribute, c.more) for c in claims("Cats are cheaper and less loud, but shy.")]
        [(['cat'], 'cheap', True), (['cat'], 'loud', False)]
    """
    found = []
    for clause in _CLAUSES.split(sentence):
        subject: frozenset[str] = frozenset()
        for part in _PARTS.split(clause):
            if claim := _claim(words_of(part)):
                subject = claim.subject or subject
                if subject:
                    found.append(claim._replace(subject=subject))
    return found


def exclude(one: Claim, other: Claim, compared: frozenset[str]) -> bool:
    """Whether two claims cannot both be true: of the same in both directions, or of each of two things over the other.

    Of what is being compared, by its stems, "X is safer" means than the other.
    """
    if one.attribute != other.attribute or one.rest != other.rest:
        return False
    if one.more != other.more:
        return one.subject == other.subject and (one.than == other.than or not one.than or not other.than)
    mine, others = one.subject - other.subject, other.subject - one.subject
    if not mine or not others:
        return False
    return others <= (one.than or (compared if mine <= compared else frozenset())) and mine <= (
        other.than or (compared if others <= compared else frozenset())
    )


def _claim(words: list[str]) -> Claim | None:
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if word in ("more", "less") and content_words(following):
            return _made(words[:place], _stem(following), word == "more", words[place + 2 :])
        if _compares(word, words[place - 1] if place else "", following):
            attribute, more = _IRREGULAR.get(word, (_positive(word), True))
            return _made(words[:place], _stem(attribute), more, words[place + 1 :])
    return None


def _made(subject: list[str], attribute: str, more: bool, after: list[str]) -> Claim:
    end = next((place for place, word in enumerate(after) if word in _REASON), len(after))
    than = after.index("than") if "than" in after[:end] else end
    texts = (subject, after[:than], after[than + 1 : end])
    about, rest, other = (content_words(" ".join(word for word in text if word not in _BEFORE)) for text in texts)
    return Claim(about, attribute, more, rest, other)


def _compares(word: str, before: str, following: str) -> bool:
    if word in _IRREGULAR:
        return bool(_IRREGULAR[word][0])
    return word.endswith("er") and len(word) > 4 and word not in _NOUNS and (before in _BEFORE or following == "than")


def _positive(word: str) -> str:
    """The word that a comparative is made of, but for an e at its end."""
    stem = word[:-2]
    return stem[:-1] if len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] not in "lsf" else stem


def _stem(word: str) -> str:
    return next(iter(content_words(word)), word).rstrip("e")
