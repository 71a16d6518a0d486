"""Paired statistics: the size of a difference, its significance, and the number of questions that would show it.

All compare two programs on the same questions. Questions are resampled, so intervals show the
uncertainty over other questions, not over another seed of the LM.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil, floor, log2

ALPHA = 0.05
"""The corrected p-value below which a difference is called real."""
FLIPS = 49_999
"""Random flips of signs: enough for the least p-value, 0.00004, to survive a correction for a thousand comparisons."""

_EXACT = 15
"""The most differences for which all flips of signs are tried: 2^15 are fewer than `FLIPS`."""


def permutation_p_values(
    differences: Sequence[Sequence[float]], *, seed: int = 0, flips: int = FLIPS
) -> list[float | None]:
    """Two-sided p-values of the paired permutation test, one for each list of differences.

    If the two programs were alike, each difference could as well have had the other sign: the
    p-value is the share of all assignments of signs whose mean is at least as far from 0 as the
    actual one. With few differences all assignments are tried; else `flips` random ones, which all
    lists share.

    Args:
        differences: For each test the differences of its questions, see `sums_by_group`; of any lengths.
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


def correct(p: float | None, tests: int) -> float | None:
    """A p-value corrected for the number of tests that are looked at together, after Bonferroni; None without one.

    Corrections that are less strict, such as Benjamini and Hochberg's, let sure differences make others look sure: a
    difference that is chance would pass because the same effect was measured eight times beside it.

    Example:
        >>> correct(0.02, 2), correct(0.4, 3), correct(None, 2)
        (0.04, 1.0, None)
    """
    return None if p is None else min(1.0, p * tests)


def fewest_questions(tests: int = 1) -> int:
    """The fewest questions whose sign-flip test, with `tests` looked at together, can reach a p below 0.05.

    Example:
        The least p of 6 questions is 2 / 2^6 = 0.031, that of 7 is half of it.

        >>> fewest_questions(), fewest_questions(tests=2)
        (6, 7)
    """
    return floor(log2(2 * tests / ALPHA)) + 1


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
    return max(fewest_questions(), ceil((z * float(np.std(differences, ddof=1)) / mean) ** 2))
