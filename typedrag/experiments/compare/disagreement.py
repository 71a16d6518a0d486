"""Disagreements of rank and truth: a judge may reward answers that only sound right."""

from __future__ import annotations

from dataclasses import dataclass

from typedrag.experiments.compare.statistics import paired_bootstrap
from typedrag.experiments.compare.truth import RIGHT, TRUTH
from typedrag.experiments.evaluate.results import Run
from typedrag.experiments.formats import format_estimate
from typedrag.records import Estimate

_BETTER = {
    "linkage/mrr": 1,
    "linkage/expected_rank": -1,
    "linkage/mpr": 1,
    "linkage/quality": 1,
    "coverage/rating": 1,
    "coverage/core": 1,
}
"""Measures that a fabrication can win, each with 1 if more is better, else -1."""
_TRUTHS = {TRUTH: "is less truthful", RIGHT: "has fewer right answers"}


@dataclass(frozen=True)
class Disagreement:
    """A run that judges prefer to another, although it is less true; runs are named by their labels.

    Attributes:
        judged: The preferred run's value less the other's, by measure.
        truth: `truthfulness/truthfulness` or `truthfulness/right`.
        difference: The preferred run's truth less the other's, below 0.
    """

    preferred: str
    other: str
    judged: dict[str, Estimate]
    truth: str
    difference: Estimate

    def __str__(self) -> str:
        by = ", ".join(f"{name} {format_estimate(gain, signed=True)}" for name, gain in self.judged.items())
        lost = f"{self.truth} {format_estimate(self.difference, signed=True)}"
        return (
            f"rank and truth disagree: {self.preferred} is better than {self.other} by {by}, "
            f"and {_TRUTHS[self.truth]}, {lost}: the judge may be paying for fabrications"
        )


def disagreements(baseline: Run, run: Run, labels: tuple[str, str], seed: int = 0) -> list[Disagreement]:
    """The disagreements of two runs: a judge prefers one, and the other is more truthful or has more right answers.

    By mean paired differences, one run is better at a judged measure and the other at truth, and the 95 % interval of
    at least one of the two differences excludes 0. The result does not depend on which run is the baseline, and is
    empty if truthfulness was not measured.
    """
    conflicts = []
    for truth in _TRUTHS:
        for first, second, named in ((baseline, run, labels), (run, baseline, labels[::-1])):
            lost = _difference(first, second, truth, seed)
            if lost is None or lost.value >= 0:
                continue
            gained = {m: gain for m in _BETTER if (gain := _difference(first, second, m, seed))}
            judged = {m: gain for m, gain in gained.items() if gain.value * _BETTER[m] > 0 and _is_sure(gain, lost)}
            if judged:
                conflicts.append(Disagreement(named[1], named[0], judged, truth, lost))
    return conflicts


def _is_sure(*differences: Estimate) -> bool:
    return any(d.low > 0 or d.high < 0 for d in differences)


def _difference(first: Run, second: Run, measure: str, seed: int) -> Estimate | None:
    """The second run's values less the first's, over the questions for which both have a value."""
    before, after = first.values(measure), second.values(measure)
    shared = [i for i in before if i in after]
    keys = first.groups
    groups = [keys[i] for i in shared]
    means = paired_bootstrap([after[i] for i in shared], [before[i] for i in shared], groups=groups, seed=seed)
    return means.difference if means else None
