"""Checks whether an answer includes a short gold answer, by words.

As `contains`, but numbers match in digits and in English words, and dates in the usual orders. A year in words
(nineteen forty-five) and synonyms do not match.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from dspy.evaluate.metrics import normalize_text

from typedrag.metrics.text_overlap import contains, entities
from typedrag.text.sentences import sentences

MOST_WORDS = 8
"""The most words of a short gold answer: for longer ones, no rule tells whether an answer includes it."""

_SIDES = {"yes", "no"}
# "no passage tells" is not a "no"; "yes it does" is a "yes"
_TAKEN_SIDE = re.compile(r"\W*(?:(yes)\b|(no)(?=\s*[,.;:!–—-]|\s*$))", re.IGNORECASE)
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b(?:\s+of\b)?")
_DATES = ("{0:%B} {0.day} {0.year}", "{0.day} {0:%B} {0.year}", "{0:%b} {0.day} {0.year}", "{0:%Y-%m-%d}")


def is_short(answer: str) -> bool:
    """True if each entity of a gold answer has few words.

    Example:
        >>> is_short("1651 && Rachael"), is_short("hotter for the same life before the filament evaporates")
        (True, False)
    """
    return all(len(entity.split()) <= MOST_WORDS for entity in entities(answer))


def says(text: str, answers: Sequence[str]) -> bool | None:
    """True if a text includes one of the gold answers, with all its entities.

    Args:
        text: Any text.
        answers: Short gold answers.

    Returns:
        None if a gold answer is yes or no, and no sentence of the text begins with either.

    Example:
        >>> says("He succeeded in 1651.", ["1651 && Rachael"]), says("Rachael, in 1651.", ["1651 && Rachael"])
        (False, True)
        >>> says("It fell on the 2nd of March, 1861.", ["March 2 , 1861"]), says("It has twenty-one.", ["21"])
        (True, True)
        >>> says("No passage tells. No, it is not.", ["no"]), says("Both are American.", ["yes"])
        (True, None)
    """
    if sides := {side for a in answers if (side := normalize_text(a)) in _SIDES}:
        opening = next((m[0] for s in sentences(text) if (m := _TAKEN_SIDE.match(s))), None)
        return None if opening is None else normalize_text(opening) in sides
    return any(all(_has(text, entity) for entity in parts) for a in answers if (parts := entities(a)))


def in_digits(text: str, least: float = 0.0) -> str:
    """A text with English numerals replaced by digits.

    Args:
        text: Any text.
        least: Numerals up to this stay if they stand alone: a "one" is seldom a number.

    Example:
        >>> in_digits("twenty-five cows, one dog"), in_digits("one of two million", 3)
        ('25 cows, 1 dog', 'one of 2000000')
    """
    from text_to_num import alpha2digit

    return str(alpha2digit(text, "en", least))


def _has(text: str, entity: str) -> bool:
    if contains(text, entity) or contains(in_digits(text), in_digits(entity)):
        return True
    dates = _dates(entity)
    return bool(dates) and any(contains(_ORDINAL.sub("", text), date) for date in dates)


def _dates(entity: str) -> list[str]:
    """The usual forms of an entity that is a date; empty if it is none."""
    from dateutil.parser import parse

    if not any(letter.isalpha() for letter in entity):
        return []  # it is not known which number is the day
    try:
        one, other = (parse(entity, default=d, ignoretz=True) for d in (datetime(2000, 1, 1), datetime(2001, 2, 2)))
    except (ValueError, OverflowError):
        return []
    return [form.format(one) for form in _DATES] if one == other else []
