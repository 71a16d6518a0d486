"""Comparative claims of English sentences, and whether two such claims exclude each other."""

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
"""Words after which a word in -er is a comparative."""
_NOUNS = frozenset(
    """water paper power silver rubber leather timber fiber fibre winter summer corner matter order other another
    either neither rather together whether over under after never ever former latter super proper per number user
    later however letter sister brother mother father her inner outer upper consumer computer""".split()
)


class Claim(NamedTuple):
    """A claim that something is more or less than something else.

    Attributes:
        subject: The stems of the thing that the claim is about.
        attribute: The stem of the property in which it is more or less.
        more: True for more, False for less.
        rest: The stems of the rest of the claim, such as when it holds.
        than: The stems of the thing that it is compared with; empty if the claim names none.
    """

    subject: frozenset[str]
    attribute: str
    more: bool
    rest: frozenset[str]
    than: frozenset[str]


def claims(sentence: str) -> list[Claim]:
    """The claims of a sentence; parts joined by "and" share the subject.

    Example:
        >>> [(sorted(c.subject), c.attribute, c.more) for c in claims("Cats are cheaper and less loud, but shy.")]
        [(['cat'], 'cheap', True), (['cat'], 'loud', False)]
    """
    results = []
    for clause in _CLAUSES.split(sentence):
        subject: frozenset[str] = frozenset()
        for part in _PARTS.split(clause):
            if claim := _claim(words_of(part)):
                subject = claim.subject or subject
                if subject:
                    results.append(claim._replace(subject=subject))
    return results


def exclude(one: Claim, other: Claim, compared: frozenset[str]) -> bool:
    """True if two claims exclude each other: one thing is both more and less, or each of two is more than the other.

    If X is among the things that the question compares, by their stems, "X is safer" means safer than the other.
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
    """The base form of a comparative, without an e at its end."""
    stem = word[:-2]
    return stem[:-1] if len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] not in "lsf" else stem


def _stem(word: str) -> str:
    return next(iter(content_words(word)), word).rstrip("e")
