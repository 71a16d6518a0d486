"""Estimates by bootstrap, and the agreement of a judge with people."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any

from typedrag.core.records import Estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


RESAMPLES = 2000
"""Enough for the ends of a 95 % interval to move by less than a tenth of its width between seeds."""
FEWEST_UNITS = 10
"""The fewest units, such as questions, for an interval: with fewer, it holds the truth too seldom."""
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
    """A statistic of paired samples with its bootstrap interval.

    The interval is between percentiles of the bootstrap distribution. They lie further out than the confidence, by as
    much as a t interval is wider than a normal one (Hesterberg 2015, "What teachers should know about the bootstrap"):
    plain percentiles are too narrow for few units. `python -m benchmarks.verdicts` measures how often it holds the
    truth. Resamples on which the statistic is undefined, such as a correlation of constants, are ignored.

    Args:
        statistic: A function of an array for each sample, all of one length; NaN if it is undefined.
        samples: Observations; those at the same position belong together and are resampled together.
        seed: The same seed gives the same interval.
        groups: The group of each observation, such as its question. Observations of one group are not
            independent, so whole groups are resampled.
        confidence: The share of the bootstrap distribution within the interval.
        resamples: The number of resamples.

    Returns:
        None if the statistic is undefined on the samples, or they are empty; without an interval if there are fewer
        than `FEWEST_UNITS` groups.

    Raises:
        ValueError: If samples or groups differ in length.

    Example:
        >>> import numpy as np
        >>> print(bootstrap_estimate(np.median, [1, 2, 3, 4, 90]), bootstrap_estimate(np.median, range(11)), sep="; ")
        3.000 (n = 5 questions); 5.000 [2.000, 8.000]
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
    number = None if count == n else count
    if count < FEWEST_UNITS:
        return Estimate(value, None, None, n, number)

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
    low, high = np.nanquantile(done.bootstrap_distribution, percentiles(count, confidence))
    return Estimate(value, float(low), float(high), n, number)


def percentiles(units: int, confidence: float = 0.95) -> tuple[float, float]:
    """The shares of the bootstrap distribution of a mean below the ends of an interval.

    Example:
        >>> [round(percentiles(units)[0], 4) for units in (10, 40, 1000)]
        [0.0086, 0.0203, 0.0248]
    """
    from scipy.stats import norm, t

    outside = float(norm.cdf(t.ppf((1 - confidence) / 2, units - 1) * (units / (units - 1)) ** 0.5))
    return outside, 1 - outside


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
        >>> print(mean_estimate([0.0, 1.0] * 50, seed=1), mean_estimate([0.5]), sep="; ")
        0.500 [0.400, 0.600]; 0.500 (n = 1 question)
    """
    return next(
        iter(mean_estimates(values, seed=seed, groups=groups, confidence=confidence, resamples=resamples)), None
    )


def mean_estimates(
    *rows: Sequence[float],
    seed: int = 0,
    groups: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> list[Estimate]:
    """The mean of each row of values, which belong to the same units, over the same resamples; none without values."""
    import numpy as np

    n = len(rows[0])
    lengths = [len(row) for row in (*rows, *([groups] if groups is not None else []))]
    if any(length != n for length in lengths):
        raise ValueError(f"{', '.join(map(str, lengths))} values are not paired")
    if n == 0:
        return []
    sums = np.array([sums_by_group(row, groups) for row in (*rows, [1.0] * n)])
    means, count = sums[:-1].sum(axis=1) / n, sums.shape[1]
    units = None if count == n else count
    if count < FEWEST_UNITS:
        return [Estimate(float(mean), None, None, n, units) for mean in means]
    rng, batch = np.random.default_rng(seed), max(1, _BATCH_VALUES // (count * len(sums)))
    sizes = [min(batch, resamples - start) for start in range(0, resamples, batch)]
    drawn = np.hstack([sums[:, rng.integers(count, size=(size, count))].sum(axis=2) for size in sizes])
    ends = np.quantile(drawn[:-1] / drawn[-1], percentiles(count, confidence), axis=1)
    return [Estimate(float(m), float(low), float(high), n, units) for m, low, high in zip(means, *ends, strict=True)]


def sums_by_group(values: Sequence[float], groups: Sequence[Hashable] | None) -> list[float]:
    """The sums of each group's values, in the order of their first values; without groups, the values themselves.

    Example:
        >>> sums_by_group([1, 2, 3], ["a", "b", "a"])
        [4, 2]
    """
    if groups is None:
        return list(values)
    sums: dict[Hashable, float] = {}
    for value, group in zip(values, groups, strict=True):
        sums[group] = sums.get(group, 0) + value
    return list(sums.values())


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


_NAN = float("nan")


def _rank_correlation(
    name: str,
    scores: Sequence[float],
    labels: Sequence[float],
    *,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
) -> Estimate | None:
    """SciPy's rank correlation over all observations, from -1 to 1.

    Example:
        >>> round(spearman([0.1, 0.4, 0.3, 0.9], [1, 2, 3, 4]).value, 3)
        0.8
        >>> round(kendall([0.1, 0.4, 0.3, 0.9], [1, 2, 3, 4]).value, 3)
        0.667
    """
    from scipy import stats

    def correlation(x: NDArray[Any], y: NDArray[Any]) -> float:
        constant = (x == x[0]).all() or (y == y[0]).all()  # SciPy would warn
        return _NAN if constant else float(getattr(stats, name)(x, y).statistic)

    return bootstrap_estimate(correlation, scores, labels, groups=groups, seed=seed)


spearman = partial(_rank_correlation, "spearmanr")
kendall = partial(_rank_correlation, "kendalltau")
"""Kendall's tau-b, which is corrected for ties."""


def pairwise_order_accuracy(
    scores: Sequence[float],
    labels: Sequence[float],
    *,
    groups: Sequence[Any],
    units: Sequence[Any] | None = None,
    seed: int = 0,
) -> Estimate | None:
    """The share of a question's pairs that the scores put in the labels' order; 0.5 is chance.

    Only answers to the same question, as `groups` names it, make a pair; all pairs count the same.
    Pairs with equal labels have no order and are left out. Pairs with equal scores count half, as
    if the judge had guessed.

    Args:
        scores: The judge's scores.
        labels: People's labels.
        groups: The group of each observation; pairs are made within groups.
        units: The units to resample, such as the question of several groups; by default the groups.
        seed: The seed of the resampling.

    Returns:
        An estimate whose n is the number of pairs that have an order.

    Example:
        >>> pairwise_order_accuracy([0.9, 0.5, 0.5, 0.1], [3, 3, 2, 1], groups="qqqq").value
        0.9
    """
    unit_of = dict(zip(groups, units if units is not None else groups, strict=True))
    counts: dict[Any, tuple[float, int]] = {}
    for group, (right, of) in ordered_pairs(scores, labels, groups).items():
        before = counts.get(unit_of[group], (0.0, 0))
        counts[unit_of[group]] = (before[0] + right, before[1] + of)
    return share_estimate(list(counts.values()), seed)


def ordered_pairs(
    scores: Sequence[float], labels: Sequence[float], groups: Sequence[Any]
) -> dict[Any, tuple[float, int]]:
    """The number of pairs that the scores put in the labels' order, and of pairs that have one, by question.

    See `pairwise_order_accuracy`.
    """
    import numpy as np

    members: dict[Any, list[int]] = {}
    for place, (group, _, _) in enumerate(zip(groups, scores, labels, strict=True)):
        members.setdefault(group, []).append(place)
    score, label = np.asarray(scores), np.asarray(labels)
    return {group: _count_pairs(score[places], label[places]) for group, places in members.items()}


def share_estimate(counts: Sequence[tuple[float, int]], seed: int = 0) -> Estimate | None:
    """The share that is right over all questions.

    Args:
        counts: Of each question the number of items that are right, and of all items.
        seed: The seed of the resampling.

    Returns:
        An estimate whose n is the number of all items.

    Example:
        >>> share_estimate([(1, 1), (1, 3)]).value
        0.5
    """
    right, of = [c[0] for c in counts], [c[1] for c in counts]
    estimate = bootstrap_estimate(lambda r, o: _ratio(r.sum(), o.sum()), right, of, seed=seed)
    return estimate and replace(estimate, n=sum(of), units=len(of))


def label_agreement(
    actual: Sequence[str], predicted: Sequence[str], *, groups: Sequence[Any] | None = None, seed: int = 0
) -> dict[str, Estimate]:
    """`accuracy` and `macro_f1` of a judge's labels; see `typedrag.metrics.labels`.

    Macro-F1 is over the labels that occur in the sample or resample.

    Example:
        >>> agreement = label_agreement(["a", "b", "a"], ["a", "a", "a"])
        >>> round(agreement["accuracy"].value, 3), agreement["macro_f1"].value
        (0.667, 0.4)
    """
    names = {str(name): code for code, name in enumerate(dict.fromkeys([*actual, *predicted]))}
    codes = [[names[str(label)] for label in side] for side in (actual, predicted)]

    def macro_f1(y: NDArray[np.int64], guess: NDArray[np.int64]) -> float:
        import numpy as np

        # counted here: scikit-learn's checks would take minutes over thousands of resamples
        right, many = np.bincount(y[y == guess], minlength=len(names)), np.bincount(y, minlength=len(names))
        either = many + np.bincount(guess, minlength=len(names))
        return float(np.mean(2 * right[either > 0] / either[either > 0]))

    estimates = {
        "accuracy": bootstrap_estimate(lambda y, guess: float((y == guess).mean()), *codes, groups=groups, seed=seed),
        "macro_f1": bootstrap_estimate(macro_f1, *codes, groups=groups, seed=seed),
    }
    return {name: estimate for name, estimate in estimates.items() if estimate is not None}


def binary_agreement(
    actual: Sequence[bool], predicted: Sequence[bool], *, groups: Sequence[Any] | None = None, seed: int = 0
) -> dict[str, Estimate]:
    """`accuracy`, `precision`, `recall` and `f1` of a judge's yes or no, with yes as the positive class.

    Undefined ones are left out: precision if the judge never says yes, recall if people never do, F1 if
    neither does.

    Example:
        >>> agreement = binary_agreement([True, True, False, False], [True, False, True, False])
        >>> {name: estimate.value for name, estimate in agreement.items()}
        {'accuracy': 0.5, 'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
    """
    measures: dict[str, Callable[..., float]] = {
        "accuracy": lambda y, guess: float((y == guess).mean()),
        "precision": lambda y, guess: _ratio((y & guess).sum(), guess.sum()),
        "recall": lambda y, guess: _ratio((y & guess).sum(), y.sum()),
        "f1": lambda y, guess: _ratio(2 * (y & guess).sum(), y.sum() + guess.sum()),
    }
    sides = [list(map(bool, side)) for side in (actual, predicted)]
    estimates = {name: bootstrap_estimate(m, *sides, groups=groups, seed=seed) for name, m in measures.items()}
    return {name: estimate for name, estimate in estimates.items() if estimate is not None}


def _count_pairs(scores: NDArray[Any], labels: NDArray[Any]) -> tuple[float, int]:
    """The number of pairs in the labels' order, ties of scores counting half, and of pairs that have one."""
    import numpy as np

    by_score = np.sign(scores[:, None] - scores[None, :])
    by_label = np.sign(labels[:, None] - labels[None, :])
    ordered = by_label != 0
    # each pair is counted from both sides
    return float((by_score * by_label + 1)[ordered].sum()) / 4, int(ordered.sum()) // 2


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else _NAN
