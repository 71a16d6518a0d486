"""Answers against short gold answers, word by word (HANRAG, section 5): exact match, F1, accuracy.

Texts are compared as SQuAD does it: without case, punctuation, English articles and accents
written apart, as `dspy.evaluate.metrics.normalize_text` leaves them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

import dspy
from dspy.evaluate.metrics import EM, F1, normalize_text

from typedrag.metrics.gold import gold_answers, gold_texts
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.texts.words import words_of

ENTITY_SEPARATOR = "&&"
"""Between the entities of the gold answer to a compound question (HANRAG, table 8)."""

_IN_NUMBERS = re.compile(r"(?<=\d)[.,](?=\d)")


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction equals one of the gold answers.

    Example:
        >>> exact_match("The Eiffel Tower.", ["eiffel tower", "Tour Eiffel"])
        True
    """
    # a text without a word equals none: "the" is no answer, though normalization makes it equal "a"
    return bool(normalize_text(prediction)) and bool(EM(prediction, list(answers)))


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """The F1 of the prediction's words against those of the gold answer that it fits best.

    Example:
        >>> round(token_f1("It is the Eiffel Tower", ["Eiffel Tower"]), 3)
        0.667
    """
    # two texts without a word agree on nothing; DSPy would say so on the terminal
    return float(F1(prediction, list(answers))) if normalize_text(prediction) else 0.0


def contains(prediction: str, answer: str) -> bool:
    """Whether a gold answer is included in the prediction, in whole words.

    SQuAD drops punctuation, which joins what it stands between; here it may as well part words.

    Example:
        >>> contains("Paris, the capital of France", "paris"), contains("I know it", "no")
        (True, False)
        >>> contains("Rachael's, 1651-1674", "1651"), contains("It took 1.5 million", "5"), contains("the US", "U.S.")
        (True, False, True)
    """
    readings = (normalize_text, _parted)
    return any((wanted := read(answer)) and f" {wanted} " in f" {read(prediction)} " for read in readings)


def _parted(text: str) -> str:
    return str(normalize_text(" ".join(words_of(_IN_NUMBERS.sub("", text)))))


def entities(answer: str) -> list[str]:
    """The entities that a gold answer consists of: more than one for compound questions.

    Example:
        >>> entities("1651 && Rachael"), entities("Paris")
        (['1651', 'Rachael'], ['Paris'])
    """
    return [entity for part in answer.split(ENTITY_SEPARATOR) if (entity := part.strip())]


def found_entities(prediction: str, answers: Sequence[str]) -> tuple[int, int]:
    """How many entities of a gold answer the prediction includes, and how many it has.

    Args:
        prediction: Any text.
        answers: The one of which the largest share is found counts.

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
        """Compare with the gold answers, else with the best references."""
        answers = gold_texts(example)
        value = token_f1(prediction.answer, answers)
        return Scored(value, _gold(answers), {"f1": value})


@metric
class Accuracy(Metric):
    """1 if the answer includes a gold answer, else 0; for compound questions the share of their entities.

    Measure: `accuracy`. Over many answers also `entity_accuracy`, which weighs every entity alike
    instead of every question.
    """

    name: ClassVar[str] = "accuracy"
    measures = ("accuracy",)
    needs = gold_answers

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Look for the gold answers."""
        answers = gold_answers(example)
        found, wanted = found_entities(prediction.answer, answers)
        value = found / wanted if wanted else 0.0
        return Scored(value, _gold(answers), {"accuracy": value}, {"found": found, "entities": wanted})

    def over_all(self, scored: Sequence[Scored]) -> dict[str, float]:
        """The share of all entities that were found: `entity_accuracy`."""
        wanted = sum(s.details["entities"] for s in scored)
        return {"entity_accuracy": sum(s.details["found"] for s in scored) / wanted} if wanted else {}


def _gold(answers: Sequence[str]) -> str:
    return f"Gold: {' or '.join(answers)}"
