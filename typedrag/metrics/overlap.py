"""Answers against gold answers, word by word (HANRAG, section 5), and whether an answer says a short gold answer.

Texts are compared as in SQuAD: without case, punctuation and English articles, and with composed accents.
"""

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
from typedrag.text.words import SHORT_ANSWER_WORDS, split_words


def gold_answers(example: dspy.Example) -> list[str]:
    """The short answers, each of which is right."""
    if answers := _not_blank(example.get("answers")):
        return answers
    raise NotMeasurable("the question has no gold answers")


def gold_texts(example: dspy.Example) -> list[str]:
    """The texts that a good answer resembles: the gold answers, or else the best references."""
    if texts := _not_blank(example.get("answers")) or best_references(example):
        return texts
    raise NotMeasurable("the question has neither gold answers nor references")


def best_references(example: dspy.Example) -> list[str]:
    """The references with the highest label in the example; empty without references."""
    references: Sequence[Reference] = [r for r in example.get("references") or () if r.text.strip()]
    best = max((r.label for r in references), default=0)
    return [r.text for r in references if r.label == best]


def good_references(example: dspy.Example) -> list[str]:
    """The texts that people labelled good: of the passages that a good answer needs, or else the best references."""
    texts = example.get("passage_texts")
    return best_references(example) if texts is None else _not_blank(texts)


def needed_passages(example: dspy.Example) -> dict[str, str]:
    """The texts of the passages that a good answer needs, by their ids (`passage_ids`); empty if unknown."""
    ids: Sequence[str] = example.get("passage_ids") or ()
    if not ids:
        raise NotMeasurable("the question has no labelled passages")
    return dict(zip(ids, example.get("passage_texts") or [""] * len(ids), strict=True))


def sub_answers(example: dspy.Example) -> list[str]:
    """The answers to the sub-aspects of the question (`sub_answers`)."""
    if answers := _not_blank(example.get("sub_answers")):
        return answers
    raise NotMeasurable("the question has no sub-answers")


def _not_blank(values: Sequence[str] | None) -> list[str]:
    return [v for v in values or () if v.strip()]


ENTITY_SEPARATOR = "&&"
"""The separator of entities in the gold answer to a compound question (HANRAG, table 8)."""

_IN_NUMBERS = re.compile(r"(?<=\d)[.,](?=\d)")


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    # a text without a word equals nothing: "the" is no answer, though normalized it equals "a"
    return bool(normalize_text(prediction)) and bool(EM(prediction, list(answers)))


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """The F1 of the prediction's words against the gold answer that fits best."""
    # texts without a word agree on nothing; DSPy would print a warning
    return float(F1(prediction, list(answers))) if normalize_text(prediction) else 0.0


def contains(prediction: str, answer: str) -> bool:
    """True if the prediction includes a gold answer, in whole words. SQuAD drops punctuation, which joins the words
    around it; here punctuation may also separate words."""
    joined = [str(normalize_text(text)) for text in (prediction, answer)]
    parted = [str(normalize_text(" ".join(split_words(_IN_NUMBERS.sub("", text))))) for text in (prediction, answer)]
    return any(bool(words) and f" {words} " in f" {text} " for text, words in (joined, parted))


def entities(answer: str) -> list[str]:
    """The entities of a gold answer: more than one for compound questions."""
    return [entity for part in answer.split(ENTITY_SEPARATOR) if (entity := part.strip())]


def found_entities(prediction: str, answers: Sequence[str]) -> tuple[int, int]:
    """The number of entities that the prediction includes, and of all, of the gold answer with the largest share."""
    counts = [(sum(contains(prediction, e) for e in parts), len(parts)) for a in answers if (parts := entities(a))]
    return max(counts, key=lambda c: c[0] / c[1], default=(0, 0))


def _score_gold(measure: str, value: float, golds: Sequence[str], **details: int) -> Scored:
    return Scored(value, f"Gold: {' or '.join(golds)}", {measure: value}, details)


@metric
class ExactMatch(Metric):
    """1 if the answer equals a gold answer, else 0. Measure: `em`."""

    name: ClassVar[str] = "exact-match"
    measures = ("em",)
    needs = gold_answers

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        return _score_gold("em", float(exact_match(prediction.answer, golds := gold_answers(example))), golds)


@metric
class TokenF1(Metric):
    """The F1 of the words of the answer and the gold answer, or else the best reference. Measure: `f1`."""

    name: ClassVar[str] = "f1"
    measures = ("f1",)
    needs = gold_texts

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        return _score_gold("f1", token_f1(prediction.answer, golds := gold_texts(example)), golds)


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
        golds = gold_answers(example)
        included, total = found_entities(prediction.answer, golds)
        return _score_gold("accuracy", included / total if total else 0.0, golds, found=included, entities=total)

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        total = sum(s.details["entities"] for s in scored)
        return {"entity_accuracy": sum(s.details["found"] for s in scored) / total} if total else {}


_SIDES = {"yes", "no"}
# "no passage tells" is not a "no"; "yes it does" is a "yes"
_TAKEN_SIDE = re.compile(r"\W*(?:(yes)\b|(no)(?=\s*[,.;:!–—-]|\s*$))", re.IGNORECASE)
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b(?:\s+of\b)?")
_DATES = ("{0:%B} {0.day} {0.year}", "{0.day} {0:%B} {0.year}", "{0:%b} {0.day} {0.year}", "{0:%Y-%m-%d}")


def is_short(answer: str) -> bool:
    """True if each entity of a gold answer has few words."""
    return all(len(entity.split()) <= SHORT_ANSWER_WORDS for entity in entities(answer))


def says(text: str, answers: Sequence[str]) -> bool | None:
    """True if a text includes one of the short gold answers, with all its entities.

    As `contains`, but numbers match in digits and in English words, and dates in the usual orders. None if a gold
    answer is yes or no, and no sentence of the text begins with either.
    """
    if sides := {side for a in answers if (side := normalize_text(a)) in _SIDES}:
        opening = next((m[0] for s in sentences(text) if (m := _TAKEN_SIDE.match(s))), None)
        return None if opening is None else normalize_text(opening) in sides
    return any(all(_includes(text, entity) for entity in parts) for a in answers if (parts := entities(a)))


def in_digits(text: str, least: float = 0.0) -> str:
    """The text with English numerals as digits; those up to `least` stay if alone: a "one" is seldom a number."""
    from text_to_num import alpha2digit

    return str(alpha2digit(text, "en", least))


def _includes(text: str, entity: str) -> bool:
    """True if a text includes an entity: as it is, with numbers as digits, or in another usual form of a date."""
    from dateutil.parser import parse

    if contains(text, entity) or contains(in_digits(text), in_digits(entity)):
        return True
    if not any(letter.isalpha() for letter in entity):
        return False  # if it is a date, it is not known which number is the day
    try:
        one, other = (parse(entity, default=d, ignoretz=True) for d in (datetime(2000, 1, 1), datetime(2001, 2, 2)))
    except (ValueError, OverflowError):
        return False
    return one == other and any(contains(_ORDINAL.sub("", text), form.format(one)) for form in _DATES)
