"""Compare trials by their values of the same questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from typedrag.experiments.compare.compare import COSTS
from typedrag.experiments.evaluate.results import Run
from typedrag.optimizers.sweep.config import ConstraintConfig, ObjectiveConfig

Values = Mapping[str, Sequence[float | None]]
"""By measure, a value for each question in the order of the sweep; None for a question without a value."""


def values_of(run: Run, questions: Sequence[str]) -> dict[str, list[float | None]]:
    """All measures of a run, for these questions in their order."""
    columns = {}
    scores = [f"{metric}/score" for question in run.questions for metric in question.metrics]
    for measure in dict.fromkeys((*run.measures, *scores, *COSTS)):
        values = run.values(measure)
        columns[measure] = [values.get(question) for question in questions]
    return columns


def mean_of(values: Values, measure: str) -> float | None:
    """The mean of a measure over the questions that have a value; None if no question has one."""
    return _mean(values.get(measure, ()))


def violations(constraints: Sequence[ConstraintConfig], values: Values) -> dict[str, float]:
    """The excess over each constraint as a share of its limit; 0 or less if the constraint is kept.

    Example:
        >>> violations([ConstraintConfig(measure="cost/tokens", at_most=100)], {"cost/tokens": [100.0, 200.0]})
        {'cost/tokens at most 100': 0.5}
    """
    amounts = {}
    for constraint in constraints:
        mean = mean_of(values, constraint.measure)
        limits = ((constraint.at_most, 1, "at most"), (constraint.at_least, -1, "at least"))
        for limit, sign, words in limits:
            if limit is not None:
                passed = 1.0 if mean is None else sign * (mean - limit) / (abs(limit) or 1.0)
                amounts[f"{constraint.measure} {words} {limit:g}"] = passed
    return amounts


def levels(trials: Sequence[Values], objectives: Sequence[ObjectiveConfig], first: int) -> list[list[float | None]]:
    """The comparable levels of trials at each objective, over the first questions; more is better.

    A level is the mean difference of a trial's values to each question's mean over the trials that have a
    value. If no value is missing, levels order trials as their means do; if an answer failed, the trial is
    neither rewarded nor punished for how hard that question was.

    Returns:
        For each trial a level for each objective; None if the trial has no value of it.

    Example:
        >>> objective = [ObjectiveConfig(measure="em/f1")]
        >>> levels([{"em/f1": [0.2, 0.9]}, {"em/f1": [0.1, None]}], objective, first=2)
        [[0.025], [-0.05]]
    """
    rows: list[list[float | None]] = [[] for _ in trials]
    for objective in objectives:
        columns = [list(values.get(objective.measure, ()))[:first] for values in trials]
        means = [_mean([c[i] for c in columns if i < len(c)]) for i in range(first)]
        for levels_of_trial, column in zip(rows, columns, strict=True):
            gains = [
                objective.sign * (value - mean)
                for value, mean in zip(column, means, strict=False)
                if value is not None and mean is not None
            ]
            levels_of_trial.append(round(fmean(gains), 12) if gains else None)
    return rows


def beats(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    """True if one is as good at every objective and better at some; None is worse than any value.

    Example:
        >>> beats([0.2, 0.1], [0.2, 0.0]), beats([0.3, 0.0], [0.2, 0.1]), beats([0.1], [None])
        (True, False, True)
    """
    pairs = [(_or_worst(a), _or_worst(b)) for a, b in zip(one, other, strict=True)]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def front(trials: Sequence[Sequence[float | None]]) -> list[int]:
    """The positions of the trials that no other beats.

    Example:
        >>> front([[1.0, 0.0], [0.0, 1.0], [0.0, 0.5]])
        [0, 1]
    """
    return [i for i, one in enumerate(trials) if not any(beats(other, one) for other in trials)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _or_worst(value: float | None) -> float:
    return float("-inf") if value is None else value
