"""Successive halving over nested sets of questions: which trials go on to more questions."""

from __future__ import annotations

from collections.abc import Sequence

from typedrag.optimizers.sweep.config import ConstraintConfig, ObjectiveConfig, PruningConfig
from typedrag.optimizers.sweep.objectives import Values, beats, levels, violations


def question_sets(questions: int, pruning: PruningConfig) -> list[int]:
    """How many of the first questions a trial answers before it is looked at again; the last is all of them.

    Example:
        >>> question_sets(50, PruningConfig(first=8, growth=2))
        [8, 16, 32, 50]
        >>> question_sets(50, PruningConfig(enabled=False))
        [50]
    """
    sizes, size = [], pruning.first
    while pruning.enabled and size < questions:
        sizes.append(size)
        size *= pruning.growth
    return [*sizes, questions]


def goes_on(
    trial: Values,
    others: Sequence[Values],
    first: int,
    *,
    objectives: Sequence[ObjectiveConfig],
    constraints: Sequence[ConstraintConfig],
    growth: int,
) -> bool:
    """Whether a trial goes on after the first questions: if few enough of the others beat it.

    Of n trials that came so far, n over `growth` go on, but the first ones always do, as nobody
    waits for others to come (Li et al., 2020, asynchronous successive halving). With several
    objectives, who is beaten by as many as that stays behind; the front always goes on.

    Args:
        others: Of the trials that have answered as many questions, whatever became of them.
    """
    compared = [trial, *others]
    passed = [_passed(values, first, constraints) for values in compared]
    reached = levels(compared, objectives, first)
    better = 0
    for i in range(1, len(compared)):
        if passed[i] != passed[0]:
            better += passed[i] < passed[0]
        else:
            better += beats(reached[i], reached[0])
    return better < max(1, len(compared) // growth)


def _passed(values: Values, first: int, constraints: Sequence[ConstraintConfig]) -> float:
    """By how much constraints are passed on the first questions."""
    known = {measure: list(column)[:first] for measure, column in values.items()}
    return round(sum(max(0.0, v) for v in violations(constraints, known).values()), 12)
