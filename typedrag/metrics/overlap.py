"""Answers against gold answers, word by word (HANRAG, section 5), and whether an answer says a short gold answer.

Texts are compared as in SQuAD, normalized by `dspy.evaluate.metrics.normalize_text`: without case,
punctuation and English articles, and with composed accents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

import dspy
from dspy.evaluate.metrics import EM, F1, normalize_text

from typedrag.core.errors import NotMeasurable
from typedrag.core.records import Reference
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.text.sentences import sentences
from typedrag.text.words import split_words


def gold_answers(example: dspy.Example) -> list[str]:
    """The short answers, each of which is right.

    Example:
        >>> gold_answers(dspy.Example(answers=("Paris", " ")))
        ['Paris']
    """
    if answers := _texts(example.get("answers")):
        return answers
    raise NotMeasurable("the question has no gold answers")


def gold_texts(example: dspy.Example) -> list[str]:
    """The texts that a good answer resembles: the gold answers, or else the best references.

    Example:
        >>> gold_texts(dspy.Example(references=(Reference("good", 3), Reference("as good", 3), Reference("bad", 0))))
        ['good', 'as good']
    """
    if texts := _texts(example.get("answers")) or best_references(example):
        return texts
    raise NotMeasurable("the question has neither gold answers nor references")


def best_references(example: dspy.Example) -> list[str]:
    """The references with the highest label in the example; empty without references."""
    references: Sequence[Reference] = [r for r in example.get("references") or () if r.text.strip()]
    best = max((r.label for r in references), default=0)
    return [r.text for r in references if r.label == best]


def good_references(example: dspy.Example) -> list[str]:
    """The texts that people labelled good: of the passages that a good answer needs, or else the best references.

    Example:
        >>> graded = (Reference("Yeast.", 4), Reference("Gas.", 3), Reference("Flour.", 1))
        >>> good_references(dspy.Example(references=graded, passage_texts=("Yeast.", "Gas.")))
        ['Yeast.', 'Gas.']
        >>> good_references(dspy.Example(references=graded, passage_texts=()))
        []
        >>> good_references(dspy.Example(references=graded, passage_ids=("p1", "p2")))
        ['Yeast.']
    """
    texts = example.get("passage_texts")
    return best_references(example) if texts is None else _texts(texts)


def needed_passages(example: dspy.Example) -> dict[str, str]:
    """The texts of the passages that a good answer needs, by their ids (`passage_ids`); empty if unknown.

    Example:
        >>> needed_passages(dspy.Example(passage_ids=("p1",), passage_texts=("Yeast.",)))
        {'p1': 'Yeast.'}
        >>> needed_passages(dspy.Example(passage_ids=("p1", "p2")))
        {'p1': '', 'p2': ''}
    """
    ids: Sequence[str] = example.get("passage_ids") or ()
    if not ids:
        raise NotMeasurable("the question has no labelled passages")
    return dict(zip(ids, example.get("passage_texts") or [""] * len(ids), strict=True))


def sub_answers(example: dspy.Example) -> list[str]:
    """The answers to the sub-aspects of the question (`sub_answers`)."""
    if answers := _texts(example.get("sub_answers")):
        return answers
    raise NotMeasurable("the question has no sub-answers")


def _texts(values: Sequence[str] | None) -> list[str]:
    return [v for v in values or () if v.strip()]


ENTITY_SEPARATOR = "&&"
"""The separator of entities in the gold answer to a compound question (HANRAG, table 8)."""

_IN_NUMBERS = re.compile(r"(?<=\d)[.,](?=\d)")


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    """True if the prediction equals one of the gold answers.

    Example:
        >>> exact_match("The Eiffel Tower.", ["eiffel tower", "Tour Eiffel"])
        True
    """
    # a text without a word equals nothing: "the" is no answer, though normalized it equals "a"
    return bool(normalize_text(prediction)) and bool(EM(prediction, list(answers)))


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """The F1 of the prediction's words against the gold answer that fits best.

    Example:
        >>> round(token_f1("It is the Eiffel Tower", ["Eiffel Tower"]), 3)
        0.667
    """
    # texts without a word agree on nothing; DSPy would print a warning
    return float(F1(prediction, list(answers))) if normalize_text(prediction) else 0.0


def contains(prediction: str, answer: str) -> bool:
    """True if the prediction includes a gold answer, in whole words.

    SQuAD drops punctuation, which joins the words around it; here punctuation may also separate words.

    Example:
        >>> contains("Paris, the capital of France", "paris"), contains("I know it", "no")
        (True, False)
        >>> contains("Rachael's, 1651-1674", "1651"), contains("It took 1.5 million", "5"), contains("the US", "U.S.")
        (True, False, True)
    """
    readings = (normalize_text, _parted)
    return any((words := read(answer)) and f" {words} " in f" {read(prediction)} " for read in readings)


def _parted(text: str) -> str:
    return str(normalize_text(" ".join(split_words(_IN_NUMBERS.sub("", text)))))


def entities(answer: str) -> list[str]:
    """The entities of a gold answer: more than one for compound questions.

    Example:
        >>> entities("1651 && Rachael"), entities("Paris")
        (['1651', 'Rachael'], ['Paris'])
    """
    return [entity for part in answer.split(ENTITY_SEPARATOR) if (entity := part.strip())]


def found_entities(prediction: str, answers: Sequence[str]) -> tuple[int, int]:
    """The number of a gold answer's entities that the prediction includes, and of all its entities.

    Args:
        prediction: Any text.
        answers: Gold answers; the one with the largest share counts.

    Example:
        >>> found_entities("He succeeded in 1651.", ["1651 && Rachael"])
        (1, 2)
    """
    counts = [(sum(contains(prediction, e) for e in parts), len(parts)) for a in answers if (parts := entities(a))]
    return max(counts, key=lambda c: c[0] / c[1], default=(0, 0))


@metric
class ExactMatch(Metric):
    """1 if the answer equals a gold answer, else 0. Measure: `em`."""

    name: ClassVar[str] = "exact-match"
    measures = ("em",)
    needs = gold_answers

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare with the gold answers."""
        answers = gold_answers(example)
        value = float(exact_match(prediction.answer, answers))
        return Scored(value, _gold(answers), {"em": value})


@metric
class TokenF1(Metric):
    """The F1 of the answer's words. Measure: `f1`."""

    name: ClassVar[str] = "f1"
    measures = ("f1",)
    needs = gold_texts

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare with the gold answers, or else with the best references."""
        answers = gold_texts(example)
        value = token_f1(prediction.answer, answers)
        return Scored(value, _gold(answers), {"f1": value})


@metric
class Accuracy(Metric):
    """1 if the answer includes a gold answer, else 0; for compound questions the share of their entities.

    Measure: `accuracy`. Over many answers also `entity_accuracy`, which weighs every entity equally
    instead of every question.
    """

    name: ClassVar[str] = "accuracy"
    measures = ("accuracy",)
    needs = gold_answers

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Look for the gold answers."""
        answers = gold_answers(example)
        included, total = found_entities(prediction.answer, answers)
        value = included / total if total else 0.0
        return Scored(value, _gold(answers), {"accuracy": value}, {"found": included, "entities": total})

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        """The share of all entities that were found: `entity_accuracy`."""
        total = sum(s.details["entities"] for s in scored)
        return {"entity_accuracy": sum(s.details["found"] for s in scored) / total} if total else {}


def _gold(answers: Sequence[str]) -> str:
    return f"Gold: {' or '.join(answers)}"


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
