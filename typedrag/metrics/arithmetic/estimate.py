"""Estimates by bootstrap."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from math import isnan
from typing import Any

from typedrag.records import Estimate

RESAMPLES = 2000
"""Enough for the ends of a 95 % interval to move by less than a tenth of its width between seeds."""
FEWEST_DIFFERENCES = 6
"""The fewest differences for a test: with five, the p of a sign-flip test cannot be below 2 / 2^5, and an
interval is too narrow."""
_BATCH_VALUES = 10_000_000
"""The number of resampled values held at once: 80 MB."""


def bootstrap_estimate(
    statistic: Callable[..., float],
    *samples: Sequence[Any],
    seed: int = 0,
    groups: Sequence[Any] | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Estimate | None:
    """A statistic of paired samples with its percentile bootstrap interval.

    Resamples on which the statistic is undefined, such as a correlation of constants, are ignored.

    Args:
        statistic: A function of an array for each sample, all of one length; NaN if it is undefined.
        samples: Observations; those at the same position belong together and are resampled together.
        seed: The same seed gives the same interval.
        groups: The group of each observation, such as its question. Observations of one group are not
            independent, so whole groups are resampled.
        confidence: The share of the bootstrap distribution within the interval.
        resamples: The number of resamples.

    Returns:
        None if the statistic is undefined on the samples, or they are empty.

    Raises:
        ValueError: If samples or groups differ in length.

    Example:
        >>> import numpy as np
        >>> bootstrap_estimate(np.median, [1, 2, 3, 4, 90], seed=1)
        Estimate(value=3.0, low=1.0, high=90.0, n=5)
        >>> bootstrap_estimate(np.median, []) is None
        True
    """
    import numpy as np
    from scipy.stats import DegenerateDataWarning, bootstrap

    n = len(samples[0])
    lengths = [len(s) for s in (*samples, *([groups] if groups is not None else []))]
    if any(length != n for length in lengths):
        raise ValueError(f"samples of {', '.join(map(str, lengths))} observations are not paired")
    if n == 0:
        return None
    arrays = [np.asarray(sample) for sample in samples]
    value = float(statistic(*arrays))
    if isnan(value):
        return None
    units = _Units(groups) if groups is not None and len(set(groups)) < n else None
    count = n if units is None else len(units)
    if count == 1:  # nothing to resample: the interval is the point
        return Estimate(value, value, value, n)

    def of_resample(drawn: Any) -> float:
        chosen = drawn if units is None else units.members(drawn)
        return statistic(*(array[chosen] for array in arrays))

    with warnings.catch_warnings():
        # scipy warns about resamples on which the statistic is undefined; the interval leaves them out
        warnings.simplefilter("ignore", DegenerateDataWarning)
        done = bootstrap(
            [np.arange(count)],
            of_resample,
            n_resamples=resamples,
            method="percentile",
            vectorized=False,
            batch=max(1, _BATCH_VALUES // n),
            rng=np.random.default_rng(seed),
        )
    outside = (1 - confidence) / 2
    low, high = np.nanquantile(done.bootstrap_distribution, [outside, 1 - outside])
    return Estimate(value, float(low), float(high), n)


def mean_estimate(
    values: Sequence[float],
    seed: int = 0,
    *,
    groups: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> Estimate | None:
    """The mean of values with its interval; None without values. See `bootstrap_estimate`.

    Example:
        >>> mean_estimate([0.0, 1.0] * 50, seed=1)
        Estimate(value=0.5, low=0.4, high=0.6, n=100)
        >>> mean_estimate([0.5])
        Estimate(value=0.5, low=0.5, high=0.5, n=1)
    """
    return bootstrap_estimate(
        lambda drawn: float(drawn.mean()),
        values,
        seed=seed,
        groups=groups,
        confidence=confidence,
        resamples=resamples,
    )


class _Units:
    """The positions of each group's members, with groups in the order of their first members."""

    def __init__(self, groups: Sequence[Hashable]) -> None:
        import numpy as np

        positions: dict[Hashable, list[int]] = {}
        for place, group in enumerate(groups):
            positions.setdefault(group, []).append(place)
        self._lengths = np.array([len(places) for places in positions.values()])
        self._ends = self._lengths.cumsum()
        self._places = np.concatenate([np.array(places) for places in positions.values()])

    def __len__(self) -> int:
        return len(self._lengths)

    def members(self, drawn: Any) -> Any:
        """The positions of the members of all groups that are drawn."""
        import numpy as np

        lengths = self._lengths[drawn]
        within = np.arange(lengths.sum()) - np.repeat(lengths.cumsum(), lengths)  # from -length to -1
        return self._places[np.repeat(self._ends[drawn], lengths) + within]
