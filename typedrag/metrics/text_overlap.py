"""Answers against short gold answers, word by word (HANRAG, section 5): exact match, F1, accuracy.

Texts are compared as in SQuAD, normalized by `dspy.evaluate.metrics.normalize_text`: without case,
punctuation and English articles, and with composed accents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

import dspy
from dspy.evaluate.metrics import EM, F1, normalize_text

from typedrag.metrics.gold import gold_answers, gold_texts
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.text.words import split_words

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
