"""Whether an answer says what a short gold answer says, by its words alone.

Besides what `contains` overlooks, a number is the same in digits and in English words, and a date in the usual
orders. A year in words (nineteen forty-five) and words of like meaning are not found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from dspy.evaluate.metrics import normalize_text

from typedrag.metrics.text_overlap import contains, entities
from typedrag.texts.sentences import sentences

MOST_WORDS = 8
"""Of a gold answer that is short: of a longer one no rule says whether an answer holds it."""

_SIDES = {"yes", "no"}
# "no passage tells" is no "no"; "yes it does" is a "yes"
_TAKEN_SIDE = re.compile(r"\W*(?:(yes)\b|(no)(?=\s*[,.;:!–—-]|\s*$))", re.IGNORECASE)
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b(?:\s+of\b)?")
_DATES = ("{0:%B} {0.day} {0.year}", "{0.day} {0:%B} {0.year}", "{0:%b} {0.day} {0.year}", "{0:%Y-%m-%d}")


def is_short(answer: str) -> bool:
    """Whether each entity of a gold answer has few words.

    Example:
        >>> is_short("1651 && Rachael"), is_short("hotter for the same life before the filament evaporates")
        (True, False)
    """
    return all(len(entity.split()) <= MOST_WORDS for entity in entities(answer))


def says(text: str, answers: Sequence[str]) -> bool | None:
    """Whether a text says one of the gold answers, with all its entities.

    Args:
        text: Any.
        answers: Short ones.

    Returns:
        None where yes or no is asked for, and no sentence of the text begins with either.

    Example:
        >>> says("He succeeded in 1651.", ["1651 && Rachael"]), says("Rachael, in 1651.", ["1651 && Rachael"])
        (False, True)
        >>> says("It fell on the 2nd of March, 1861.", ["March 2 , 1861"]), says("It has twenty-one.", ["21"])
        (True, True)
        >>> says("No passage tells. No, it is not.", ["no"]), says("Both are American.", ["yes"])
        (True, None)
    """
    if sides := {side for a in answers if (side := normalize_text(a)) in _SIDES}:
        taken = next((m[0] for s in sentences(text) if (m := _TAKEN_SIDE.match(s))), None)
        return None if taken is None else normalize_text(taken) in sides
    return any(all(_has(text, entity) for entity in parts) for a in answers if (parts := entities(a)))


def in_digits(text: str, least: float = 0.0) -> str:
    """A text with digits in the place of English numerals.

    Args:
        text: Any.
        least: Numerals up to this stay as they are where they stand alone: a "one" is seldom a number.

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
    """A day of a year, if that is what the entity is, in the usual orders."""
    from dateutil.parser import parse

    if not any(letter.isalpha() for letter in entity):
        return []  # which of the numbers is the day is not known
    try:
        one, other = (parse(entity, default=d, ignoretz=True) for d in (datetime(2000, 1, 1), datetime(2001, 2, 2)))
    except (ValueError, OverflowError):
        return []
    return [form.format(one) for form in _DATES] if one == other else []
