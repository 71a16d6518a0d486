"""What an example knows of good answers."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from typedrag.errors import NotMeasurable
from typedrag.records import Reference


def gold_answers(example: dspy.Example) -> list[str]:
    """The short answers any of which is right.

    Raises:
        NotMeasurable: If there is none.

    Example:
        >>> gold_answers(dspy.Example(answers=("Paris", " ")))
        ['Paris']
    """
    if found := _texts(example.get("answers")):
        return found
    raise NotMeasurable("the question has no gold answers")


def gold_texts(example: dspy.Example) -> list[str]:
    """The texts that a good answer resembles: the gold answers, else the best references.

    Raises:
        NotMeasurable: If there is neither.

    Example:
        >>> gold_texts(dspy.Example(references=(Reference("good", 3), Reference("as good", 3), Reference("bad", 0))))
        ['good', 'as good']
    """
    if found := _texts(example.get("answers")) or best_references(example):
        return found
    raise NotMeasurable("the question has neither gold answers nor references")


def best_references(example: dspy.Example) -> list[str]:
    """The references of the highest label that the example has; empty without references."""
    references: Sequence[Reference] = [r for r in example.get("references") or () if r.text.strip()]
    best = max((r.label for r in references), default=0)
    return [r.text for r in references if r.label == best]


def sub_answers(example: dspy.Example) -> list[str]:
    """What the answer to each sub-aspect of the question says (`sub_answers`).

    Raises:
        NotMeasurable: If the example has none.
    """
    if found := _texts(example.get("sub_answers")):
        return found
    raise NotMeasurable("the question has no sub-answers")


def _texts(values: Sequence[str] | None) -> list[str]:
    return [v for v in values or () if v.strip()]
