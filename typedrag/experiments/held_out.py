"""The test of whether a program, judge or ranker is better than another on the same held-out questions.

Compiles, sweeps, comparisons, checks of judges and rankers all judge by it; `docs/metrics.md` tells its rules, and
`python -m benchmarks.verdicts` measures how often it is right.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from typedrag.core.errors import InputError
from typedrag.core.records import Estimate
from typedrag.experiments.compare.statistics import (
    ALPHA,
    correct,
    fewest_questions,
    permutation_p_values,
    questions_needed,
)
from typedrag.experiments.evaluate.results import Run
from typedrag.metrics.estimate import mean_estimates, sums_by_group


class Pair(NamedTuple):
    """The values of a base and of another program, and the question of each value, which may have several."""

    base: Sequence[float]
    other: Sequence[float]
    questions: Sequence[Hashable]

    @property
    def differences(self) -> list[float]:
        """The differences, summed up by question."""
        return sums_by_group([b - a for a, b in zip(self.base, self.other, strict=True)], self.questions)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The difference between a base and another program, and whether it is more than chance.

    Attributes:
        n: The number of values that both have.
        baseline: The base's mean; None without values.
        other: The other program's mean.
        difference: The other program's mean minus the base's.
        p: p-value of the sign-flip test; None without values, or if it was not tested.
        corrected_p: The p-value, corrected for all tests that are looked at together.
        questions_needed: The number of questions that would show such a difference; None if there is none.
        more_is_better: False for ranks and costs.
    """

    n: int
    baseline: Estimate | None = None
    other: Estimate | None = None
    difference: Estimate | None = None
    p: float | None = None
    corrected_p: float | None = None
    questions_needed: int | None = None
    more_is_better: bool = True

    @property
    def verdict(self) -> Literal["better", "worse", ""]:
        """`better` or `worse` if the corrected p-value shows more than chance, else empty."""
        if self.difference is None or self.corrected_p is None or self.corrected_p >= ALPHA:
            return ""
        return "better" if (self.difference.value > 0) == self.more_is_better else "worse"

    @property
    def is_lower(self) -> bool:
        """True if the other program's mean is lower by more than chance, without a correction: a reason for caution."""
        return self.difference is not None and self.difference.value < 0 and self.p is not None and self.p < ALPHA


def held_out_test(pairs: Sequence[Pair], *, programs: int = 1, seed: int = 0) -> list[Verdict]:
    """Compare programs with a base, each by its pair of values, by paired sign-flip tests over questions.

    Args:
        pairs: All that is looked at together; p-values are corrected for the number of those with values.
        programs: The number of programs that were ever compared with the base on the same questions, if each was
            looked at alone; p-values are corrected for these as well.
        seed: The seed of resamples and flips.

    Example:
        >>> [better] = held_out_test([Pair([0.0] * 8, [0.25] * 8, range(8))])
        >>> print(better.difference, better.p, better.verdict)
        0.250 (n = 8 questions) 0.0078125 better
    """
    p_values = permutation_p_values([pair.differences for pair in pairs], seed=seed)
    tests = sum(p is not None for p in p_values) * programs
    return [estimate_difference(pair, p, tests, seed) for pair, p in zip(pairs, p_values, strict=True)]


def estimate_difference(pair: Pair, p: float | None = None, tests: int = 1, seed: int = 0) -> Verdict:
    """The means of a pair and their difference; without a p, there is no verdict."""
    differences = [b - a for a, b in zip(pair.base, pair.other, strict=True)]
    means = mean_estimates(pair.base, pair.other, differences, groups=pair.questions, seed=seed)
    baseline, other, difference = means or (None, None, None)
    needed = questions_needed(pair.differences)
    return Verdict(
        n=len(pair.base),
        baseline=baseline,
        other=other,
        difference=difference,
        p=p,
        corrected_p=correct(p, tests),
        questions_needed=needed,
    )


def pair_of(
    base: Run, other: Run, measure: str, among: Collection[str] | None = None, *, answered: bool = False
) -> Pair:
    """The values of a measure that two runs have for the same questions, with the same id and text; see `Run.values`.

    Args:
        among: The ids of the questions, by default all.
        answered: Leave out questions to which one of the two gave no answer, instead of counting them as wrong.
    """
    ours, theirs = (run.values(measure, answered=answered) for run in (base, other))
    groups, same = base.groups, shared_ids(base, other)
    shared = [i for i in ours if i in theirs and i in same and (among is None or i in among)]
    return Pair([ours[i] for i in shared], [theirs[i] for i in shared], [groups[i] for i in shared])


def shared_ids(base: Run, other: Run) -> set[str]:
    """The ids under which two runs have the same question."""
    ours, theirs = base.groups, other.groups
    return {i for i, question in ours.items() if theirs.get(i) == question}


def check_enough(questions: int, what: str, hint: str, tests: int = 1) -> None:
    """Refuse a test that could not show anything, before it is paid.

    Args:
        questions: The number of questions.
        what: The questions in words.
        hint: How the test can be made all the same.
        tests: The number of programs tested on these questions, with this one.
    """
    if questions < (needed := fewest_questions(tests)):
        after = f" after {tests - 1} tests on them" if tests > 1 else ""
        raise InputError(f"{what}: {questions} questions are too few for a verdict{after}, which takes {needed}", hint)
