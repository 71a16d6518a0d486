"""Compare trials by their values of the same questions: successive halving over nested sets of questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from typedrag.experiments.compare import COSTS
from typedrag.experiments.results import Run
from typedrag.optimizers.sweep.config import ConstraintConfig, PruningConfig, SweepConfig

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


def mean_of(values: Values, measure: str, first: int | None = None) -> float | None:
    """The mean of a measure over the first questions, by default all, that have a value; None if none has."""
    known = [value for value in list(values.get(measure, ()))[:first] if value is not None]
    return fmean(known) if known else None


def violations(constraints: Sequence[ConstraintConfig], values: Values, first: int | None = None) -> dict[str, float]:
    """The excess over each constraint as a share of its limit; 0 or less if the constraint is kept.

    Example:
        >>> violations([ConstraintConfig(measure="cost/tokens", at_most=100)], {"cost/tokens": [100.0, 200.0]})
        {'cost/tokens at most 100': 0.5}
    """
    amounts = {}
    for constraint in constraints:
        mean = mean_of(values, constraint.measure, first)
        limits = ((constraint.at_most, 1, "at most"), (constraint.at_least, -1, "at least"))
        for limit, sign, words in limits:
            if limit is not None:
                excess = 1.0 if mean is None else sign * (mean - limit) / (abs(limit) or 1.0)
                amounts[f"{constraint.measure} {words} {limit:g}"] = excess
    return amounts


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


def is_behind(trial: Values, others: Sequence[Values], first: int, config: SweepConfig) -> bool:
    """True if so many others are better on the first questions that the trial is to be pruned.

    Of n trials that came so far, n / `growth` go on, but the first ones always do, since no trial waits for others
    (asynchronous successive halving, Li et al., 2020). Optuna's pruners know one objective alone: with several, a trial
    is behind those that dominate it, so that the Pareto front always goes on.

    Args:
        others: Values of the other trials that have answered as many questions, whatever their state.
    """

    def standing(values: Values) -> tuple[float, list[float]]:
        """The excess over the constraints, and how good it is at each objective."""
        excess = sum(max(0.0, amount) for amount in violations(config.constraints, values, first).values())
        means = [(o.sign, mean_of(values, o.measure, first)) for o in config.objectives]
        return round(excess, 12), [float("-inf") if m is None else round(sign * m, 12) for sign, m in means]

    excess, own = standing(trial)
    better = sum(
        other_excess < excess or (other_excess == excess and dominates(other, own))
        for other_excess, other in map(standing, others)
    )
    return better >= max(1, (len(others) + 1) // config.pruning.growth)


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """True if one is as good at every objective and better at some.

    Example:
        >>> dominates([0.2, 0.1], [0.2, 0.0]), dominates([0.3, 0.0], [0.2, 0.1])
        (True, False)
    """
    return all(a >= b for a, b in zip(one, other, strict=True)) and one != other
