"""The good answers that an example holds."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from typedrag.core.errors import NotMeasurable
from typedrag.core.records import Reference


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
