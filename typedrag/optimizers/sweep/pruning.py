"""Successive halving over nested sets of questions: which trials go on to more questions."""

from __future__ import annotations

from collections.abc import Sequence

from typedrag.optimizers.sweep.config import ConstraintConfig, ObjectiveConfig, PruningConfig
from typedrag.optimizers.sweep.objectives import Values, beats, levels, violations


def question_sets(questions: int, pruning: PruningConfig) -> list[int]:
    """The numbers of first questions after which a trial may be pruned; the last is all questions.

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
    """True if few enough of the others beat the trial on the first questions for it to go on.

    Of n trials that came so far, n / `growth` go on, but the first ones always do, since no trial
    waits for others (asynchronous successive halving, Li et al., 2020). With several objectives, a
    trial that so many others beat is pruned; the front always goes on.

    Args:
        others: Values of the other trials that have answered as many questions, whatever their state.
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
    """The sum by which constraints are exceeded on the first questions."""
    known = {measure: list(column)[:first] for measure, column in values.items()}
    return round(sum(max(0.0, v) for v in violations(constraints, known).values()), 12)
