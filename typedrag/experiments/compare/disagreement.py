"""Disagreements of rank and truth: a judge may reward answers that only sound right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from typedrag.experiments.compare.truth import RIGHT, TRUTH
from typedrag.experiments.evaluate.results import Run
from typedrag.experiments.formats import format_estimate
from typedrag.experiments.held_out import Verdict, held_out_test, pair_of
from typedrag.records import Estimate

_JUDGED = ("linkage/score", "coverage/score")
"""Measures that a fabrication can win."""
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

    Both differences are beyond chance, in opposite directions. The result does not depend on which run is the
    baseline, and is empty if truthfulness was not measured.
    """
    conflicts = []
    for first, second, named in ((baseline, run, labels), (run, baseline, labels[::-1])):
        judged = {
            m: v for m, v in zip(_JUDGED, _tests(first, second, _JUDGED, seed), strict=True) if v.verdict == "better"
        }
        for truth, lost in zip(_TRUTHS, _tests(first, second, list(_TRUTHS), seed), strict=True):
            if judged and lost.verdict == "worse" and lost.difference:
                gained = {m: v.difference for m, v in judged.items() if v.difference}
                conflicts.append(Disagreement(named[1], named[0], gained, truth, lost.difference))
    return conflicts


def _tests(first: Run, second: Run, measures: Sequence[str], seed: int) -> list[Verdict]:
    return held_out_test([pair_of(first, second, measure) for measure in measures], seed=seed)
