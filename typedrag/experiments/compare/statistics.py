"""Paired statistics: the size of a difference, its significance, and the number of questions that would show it.

All compare two programs on the same questions. Questions are resampled, so intervals show the
uncertainty over other questions, not over another seed of the LM.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from math import ceil
from typing import NamedTuple

from typedrag.metrics.arithmetic.estimate import FEWEST_DIFFERENCES, RESAMPLES
from typedrag.records import Estimate

ALPHA = 0.05
"""The corrected p-value below which a difference is called real."""
FLIPS = 49_999
"""Random flips of signs: enough for the least p-value, 0.00004, to survive a correction for a thousand comparisons."""

_EXACT = 15
"""The most differences for which all flips of signs are tried: 2^15 are fewer than `FLIPS`."""


class Paired(NamedTuple):
    """Two means over the same questions, and the mean of the differences."""

    baseline: Estimate
    other: Estimate
    difference: Estimate


def paired_bootstrap(
    other: Sequence[float],
    baseline: Sequence[float],
    *,
    groups: Sequence[Hashable] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Paired | None:
    """Both means and their difference, with 95 % percentile bootstrap intervals over the same resamples.

    Args:
        other: A value for each question.
        baseline: The baseline's values of the same questions, in the same order.
        groups: The group of each value, if a question may have several: these are resampled together.
        seed: The seed; the same one gives the same intervals.
        resamples: The number of resamples.

    Returns:
        None without questions. The interval of a single question is its value.

    Raises:
        ValueError: If the two differ in length.

    Example:
        >>> paired_bootstrap([0.75, 1.0, 0.5], [0.25, 0.5, 0.0]).difference  # 0.5 for each question
        Estimate(value=0.5, low=0.5, high=0.5, n=3)
        >>> print(paired_bootstrap([1.0, 0.0] * 50, [0.0] * 100, seed=1).difference)
        0.500 [0.400, 0.600]
    """
    import numpy as np
    from scipy.stats import bootstrap

    first, second = np.asarray(baseline, dtype=float), np.asarray(other, dtype=float)
    if first.shape != second.shape:
        raise ValueError(f"{len(second)} and {len(first)} values are not paired")
    rows = np.stack([first, second, second - first])
    n = rows.shape[1]
    if n == 0:
        return None
    means = rows.mean(axis=1)
    low = high = means
    sums = np.stack([by_group(row, groups) for row in (*rows.tolist(), [1.0] * n)])
    count = sums.shape[1]
    if count > 1:  # scipy refuses to resample a single observation
        drawn = bootstrap(
            [np.arange(count)],  # positions, so that all rows are resampled alike
            lambda chosen, axis: sums[:3, chosen].sum(axis=axis) / sums[3, chosen].sum(axis=axis),
            n_resamples=resamples,
            method="percentile",
            vectorized=True,
            rng=np.random.default_rng(seed),
        ).bootstrap_distribution
        low, high = np.quantile(drawn, [0.025, 0.975], axis=-1)
    return Paired(*(Estimate(float(means[i]), float(low[i]), float(high[i]), n) for i in range(3)))


def by_group(values: Sequence[float], groups: Sequence[Hashable] | None) -> list[float]:
    """The sums of each group's values, in the order of their first values; without groups, the values themselves.

    Example:
        >>> by_group([1, 2, 3], ["a", "b", "a"])
        [4, 2]
    """
    if groups is None:
        return list(values)
    sums: dict[Hashable, float] = {}
    for value, group in zip(values, groups, strict=True):
        sums[group] = sums.get(group, 0) + value
    return list(sums.values())


def permutation_p_values(
    differences: Sequence[Sequence[float]], *, seed: int = 0, flips: int = FLIPS
) -> list[float | None]:
    """Two-sided p-values of the paired permutation test, one for each list of differences.

    If the two programs were alike, each difference could as well have had the other sign: the
    p-value is the share of all assignments of signs whose mean is at least as far from 0 as the
    actual one. With few differences all assignments are tried; else `flips` random ones, which all
    lists share.

    Args:
        differences: For each test the differences of its questions, see `by_group`; of any lengths.
        seed: The seed; the same one gives the same p-values.
        flips: Random assignments of signs.

    Returns:
        A p-value for each test; None for a test without differences.

    Example:
        Two of 2^5 assignments are as extreme as all positive. Of the 2^3 assignments of 3, 1, -2, whose sum
        is 2, six have a sum of at least 2 or at most -2. A single difference proves nothing:

        >>> permutation_p_values([[1, 2, 3, 4, 5], [3, 1, -2], [0.5], []])
        [0.0625, 0.75, 1.0, None]
    """
    # a difference of 0 has no sign to flip: it neither adds to a sum nor doubles the assignments
    signed = [[float(d) for d in row if d] for row in differences]
    p_values: list[float | None] = [1.0 if len(row) else None for row in differences]
    by_length = sorted((i for i, row in enumerate(signed) if row), key=lambda i: len(signed[i]))
    exact = bisect_right(by_length, _EXACT, key=lambda i: len(signed[i]))
    for chosen in (*_batches(by_length[:exact]), *_batches(by_length[exact:])):
        for i, p in zip(chosen, _flip_signs([signed[i] for i in chosen], seed, flips), strict=True):
            p_values[i] = p
    return p_values


def _batches(tests: list[int]) -> list[list[int]]:
    """Batches of tests of similar length, small enough for the sums of all flips to fit into memory."""
    return [tests[i : i + 256] for i in range(0, len(tests), 256)]


def _flip_signs(rows: list[list[float]], seed: int, flips: int) -> list[float]:
    """The p-values of rows, padded with zeros to one length so that one set of flips serves all."""
    import numpy as np
    from scipy.stats import permutation_test

    width = max(2, *(len(row) for row in rows))
    padded = np.zeros((width, len(rows)))
    for column, row in enumerate(rows):
        padded[: len(row), column] = np.asarray(row) / np.abs(row).max()
    tested = permutation_test(
        (np.ones(width),),
        # rounded, so that sums that are equal in exact arithmetic count as equal
        lambda signs, axis: np.round(signs @ padded, 9),
        permutation_type="samples",
        n_resamples=flips,
        batch=1000,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return [float(p) for p in tested.pvalue]


def correct_p_values(p_values: Sequence[float | None]) -> list[float | None]:
    """Correct p-values for their number, after Benjamini and Hochberg (1995).

    Of the differences whose corrected value is below 0.05, no more than 5 % are expected to be chance.
    Holm's correction, which guards against even one, is not used: with a hundred measures it would hide
    the differences that a report is read for. Measures of one answer rise and fall together, which this
    correction allows.

    Args:
        p_values: All p-values that are looked at together; None for a test without differences.

    Example:
        The i-th smallest of 4 is multiplied by 4 / i, and is at most the corrected value of the next one:

        >>> correct_p_values([0.01, 0.05, None, 0.03, 0.5])
        [0.04, 0.06666666666666667, None, 0.06, 0.5]
    """
    from scipy.stats import false_discovery_control

    tested = [p for p in p_values if p is not None]
    corrected = iter(false_discovery_control(tested) if tested else [])
    return [None if p is None else float(next(corrected)) for p in p_values]


def questions_needed(differences: Sequence[float]) -> int | None:
    """The number of questions that would show the mean difference with a probability of 0.8, if it is the true one.

    The normal approximation of the paired two-sided test gives ((z of 1 - alpha/2 + z of 0.8) * s / mean)^2, with alpha
    = 0.05, uncorrected, and s the standard deviation of the differences.

    Returns:
        None if the mean is 0 or there are fewer than two differences; else at least 6, below which no
        sign-flip test reaches 0.05.

    Example:
        Mean 0.5, s 0.577: (2.802 * 0.577 / 0.5)^2 = 10.5.

        >>> questions_needed([1, 0, 1, 0])
        11
        >>> questions_needed([1, -1]) is None
        True
    """
    import numpy as np
    from scipy.stats import norm

    if len(differences) < 2 or not (mean := float(np.mean(differences))):
        return None
    z = norm.ppf(1 - ALPHA / 2) + norm.ppf(0.8)
    return max(FEWEST_DIFFERENCES, ceil((z * float(np.std(differences, ddof=1)) / mean) ** 2))
