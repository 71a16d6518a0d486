"""Order examples so that question types take turns, and the first few examples are of many types."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import zip_longest

import dspy

from typedrag.core.question_types import QuestionType
from typedrag.datasets.dataset import text_hash
from typedrag.programs.typed_rag.type_classifiers import LinearTypeClassifier


def balanced(examples: Sequence[dspy.Example], seed: int = 0) -> list[dspy.Example]:
    """The examples in an order in which question types take turns.

    Teleprompters make demonstrations from the first examples that succeed: in this order, these are of
    as many types as possible. Types are ordered by name; the order within a type is random, and the same
    on every machine.

    Args:
        examples: Examples, each with a `question`.
        seed: The seed of the order.

    Example:
        >>> of = lambda t, q: dspy.Example(question=q, question_type=t)
        >>> many = [of("reason", "Why a?"), of("reason", "Why b?"), of("reason", "Why c?"), of("debate", "Is d right?")]
        >>> [e.question_type for e in balanced(many)]
        ['debate', 'reason', 'reason', 'reason']
    """
    by_lot = sorted(examples, key=lambda e: text_hash(str(e.get("id") or e.question), seed))
    return in_turn(by_lot)


def in_turn(examples: Iterable[dspy.Example]) -> list[dspy.Example]:
    """The examples in turn from each question type; the order within a type is kept.

    Example:
        >>> types = ["debate", "debate", "debate", "reason", "reason"]
        >>> [e.n for e in in_turn(dspy.Example(question_type=t, n=n) for n, t in enumerate(types))]
        [0, 3, 1, 4, 2]
    """
    by_type: dict[str, list[dspy.Example]] = defaultdict(list)
    for example in examples:
        by_type[question_type_of(example)].append(example)
    turns = zip_longest(*(by_type[name] for name in sorted(by_type)))
    return [example for turn in turns for example in turn if example is not None]


def known_type(example: dspy.Example) -> QuestionType | None:
    """The labelled type of an example's question, else the predicted one; None if there is neither.

    Example:
        >>> known_type(dspy.Example(question="Why?", predicted_type="debate"))
        <QuestionType.DEBATE: 'debate'>
    """
    label = example.get("question_type") or example.get("predicted_type")
    return QuestionType(label) if label else None


def question_type_of(example: dspy.Example) -> QuestionType:
    """The `known_type`, else the type that the linear classifier names."""
    return known_type(example) or _classified(example.question)


@cache
def _classified(question: str) -> QuestionType:
    return LinearTypeClassifier()(question=question).question_type
