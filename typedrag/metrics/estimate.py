"""Estimates by bootstrap, and the agreement of a judge with people: correlations, order of pairs and accuracy.

Higher scores and higher labels are always better: negate ranks. `groups` names the question of each observation;
observations of one question are resampled together. A value is None if it is undefined.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from typedrag.core.records import Estimate

RESAMPLES = 2000
"""Enough for the ends of a 95 % interval to move by less than a tenth of its width between seeds."""
FEWEST_UNITS = 10
"""The fewest units, such as questions, for an interval: with fewer, it holds the truth too seldom."""
_BATCH_VALUES = 10_000_000
_NAN = float("nan")


def bootstrap_estimate(
    statistic: Callable[..., float],
    *samples: Sequence[Any],
    seed: int = 0,
    groups: Sequence[Any] | None = None,
    resamples: int = RESAMPLES,
) -> Estimate | None:
    """A statistic of paired samples with its bootstrap interval; NaN where it is undefined.

    The interval is between percentiles of the bootstrap distribution. They lie further out than the confidence, by as
    much as a t interval is wider than a normal one (Hesterberg 2015, "What teachers should know about the bootstrap"):
    plain percentiles are too narrow for few units. `python -m benchmarks.verdicts` measures how often it holds the
    truth. Whole `groups`, such as questions, are resampled. None if the statistic is undefined on the samples or they
    are empty; without an interval if there are fewer than `FEWEST_UNITS` groups.

    Example:
        >>> import numpy as np
        >>> print(bootstrap_estimate(np.median, [1, 2, 3, 4, 90]), bootstrap_estimate(np.median, range(11)), sep="; ")
        3.000 (n = 5 questions); 5.000 [2.000, 8.000]
    """
    n, arrays = _count_paired(*samples, groups=groups), [np.asarray(sample) for sample in samples]
    value = float(statistic(*arrays)) if n else _NAN
    if isnan(value):
        return None
    is_grouped = groups is not None and len(set(groups)) < n
    codes: dict[Any, int] = {}
    unit = np.array([codes.setdefault(g, len(codes)) for g in groups or ()]) if is_grouped else np.arange(n)
    members, lengths = np.argsort(unit, kind="stable"), np.bincount(unit)
    count = len(lengths)
    number = count if is_grouped else None
    if count < FEWEST_UNITS:
        return Estimate(value, None, None, n, number)

    rng, values = np.random.default_rng(seed), []
    for _ in range(resamples):
        drawn = rng.integers(count, size=count)
        if is_grouped:  # all members of the units that are drawn
            drawn_lengths = lengths[drawn]
            from_end = np.arange(drawn_lengths.sum()) - np.repeat(drawn_lengths.cumsum(), drawn_lengths)
            drawn = members[np.repeat(lengths.cumsum()[drawn], drawn_lengths) + from_end]
        values.append(statistic(*(array[drawn] for array in arrays)))
    low, high = np.nanquantile(values, percentiles(count))  # without resamples on which the statistic is undefined
    return Estimate(value, float(low), float(high), n, number)


def _count_paired(*samples: Sequence[Any], groups: Sequence[Any] | None) -> int:
    lengths = [len(one) for one in (*samples, *([groups] if groups is not None else []))]
    if len(set(lengths)) > 1:
        raise ValueError(f"samples of {', '.join(map(str, lengths))} observations are not paired")
    return lengths[0]


def percentiles(units: int, confidence: float = 0.95) -> tuple[float, float]:
    """The shares of the bootstrap distribution of a mean below the ends of an interval."""
    from scipy.stats import norm, t

    outside = float(norm.cdf(t.ppf((1 - confidence) / 2, units - 1) * (units / (units - 1)) ** 0.5))
    return outside, 1 - outside


def mean_estimate(
    values: Sequence[float], seed: int = 0, *, groups: Sequence[Hashable] | None = None, resamples: int = RESAMPLES
) -> Estimate | None:
    return next(iter(mean_estimates(values, seed=seed, groups=groups, resamples=resamples)), None)


def mean_estimates(
    *rows: Sequence[float],
    seed: int = 0,
    groups: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> list[Estimate]:
    """The mean of each row of values, which belong to the same units, over the same resamples; none without values."""
    n = _count_paired(*rows, groups=groups)
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


def prediction_powered_mean(
    labels: Mapping[Any, float], judged: Mapping[Any, float] | None = None, confidence: float = 0.95
) -> Estimate | None:
    """The mean label of all units, of which people have labelled a random part and a judge has scored all.

    The judge's scores tell how lucky the draw was (prediction-powered inference, PPI++: Angelopoulos et al. 2023). Its
    power is tuned: a judge whose scores say nothing about labels gets no weight, and neither its scale nor its bias
    matters. Labels that it has no score beside are left out. Without a judge, this is the labels' mean with its t
    interval; with one, n - 2 degrees of freedom are left. There is no interval for fewer than `FEWEST_UNITS` labels.

    Example:
        >>> labels, scores = {i: i % 4 for i in range(20)}, {i: i % 4 / 4 for i in range(100)}
        >>> print(prediction_powered_mean(labels), prediction_powered_mean(labels, scores), sep="; ")
        1.500 [0.963, 2.037]; 1.500 [1.261, 1.739]
    """
    from scipy.stats import t

    shared = [unit for unit in labels if judged is None or unit in judged]
    y = np.array([labels[unit] for unit in shared], float)
    scores = judged or {}
    f = np.array([scores.get(unit, 0.0) for unit in shared], float)
    rest = np.array([score for unit, score in scores.items() if unit not in labels], float)
    if not (n := len(y)):
        return None
    left, freedom, value, variance = y, n - 1, float(y.mean()), 0.0
    if n > 2 and len(rest) > 1 and (spread := np.concatenate([f, rest]).var(ddof=1)) > 0:
        weight = np.cov(y, f)[0, 1] / ((1 + n / len(rest)) * spread)
        left, freedom = y - weight * f, n - 2
        value, variance = float(left.mean() + weight * rest.mean()), weight**2 * rest.var(ddof=1) / len(rest)
    if n < FEWEST_UNITS:
        return Estimate(value, None, None, n)
    half = float(t.ppf((1 + confidence) / 2, freedom) * (variance + left.var() / freedom) ** 0.5)
    return Estimate(value, value - half, value + half, n)


def sums_by_group(values: Sequence[float], groups: Sequence[Hashable] | None) -> list[float]:
    """The sums of each group's values, in the order of their first values; without groups, the values themselves."""
    if groups is None:
        return list(values)
    sums: dict[Hashable, float] = {}
    for value, group in zip(values, groups, strict=True):
        sums[group] = sums.get(group, 0) + value
    return list(sums.values())


def _rank_correlation(
    name: str, scores: Sequence[float], labels: Sequence[float], *, groups: Sequence[Any] | None = None, seed: int = 0
) -> Estimate | None:
    """SciPy's rank correlation over all observations, from -1 to 1."""
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
    """The share of pairs that the scores put in the labels' order; 0.5 is chance, n the number of such pairs.

    Only answers to the same question, as `groups` names it, make a pair. Pairs with equal labels have no order and are
    left out; pairs with equal scores count half. `units` are resampled, such as the question of several groups.
    """
    unit_of = dict(zip(groups, units if units is not None else groups, strict=True))
    right: dict[Any, float] = dict.fromkeys(unit_of.values(), 0.0)
    ordered: dict[Any, int] = dict.fromkeys(unit_of.values(), 0)
    for group, (in_order, pairs) in ordered_pairs(scores, labels, groups).items():
        right[unit_of[group]] += in_order
        ordered[unit_of[group]] += pairs
    counts = list(right.values()), list(ordered.values())
    estimate = bootstrap_estimate(lambda r, o: _ratio(r.sum(), o.sum()), *counts, seed=seed)
    return estimate and replace(estimate, n=sum(counts[1]), units=len(ordered))


def ordered_pairs(
    scores: Sequence[float], labels: Sequence[float], groups: Sequence[Any]
) -> dict[Any, tuple[float, int]]:
    """The number of pairs that the scores put in the labels' order, and of pairs that have one, by group."""
    places: dict[Any, list[int]] = {}
    for place, (group, _, _) in enumerate(zip(groups, scores, labels, strict=True)):
        places.setdefault(group, []).append(place)
    counts = {}
    for group, members in places.items():
        score, label = np.asarray(scores)[members], np.asarray(labels)[members]
        by_score, by_label = (np.sign(values[:, None] - values[None, :]) for values in (score, label))
        has_order = by_label != 0
        # each pair is counted from both sides, and ties of scores are half right
        counts[group] = float((by_score * by_label + 1)[has_order].sum()) / 4, int(has_order.sum()) // 2
    return counts


def label_agreement(
    actual: Sequence[str], predicted: Sequence[str], *, groups: Sequence[Any] | None = None, seed: int = 0
) -> dict[str, Estimate]:
    """`accuracy` and `macro_f1` of a judge's labels, the latter over the labels that occur in the sample or
    resample."""
    names = {str(name): code for code, name in enumerate(dict.fromkeys([*actual, *predicted]))}
    codes = [[names[str(label)] for label in side] for side in (actual, predicted)]

    def macro_f1(y: NDArray[np.int64], guess: NDArray[np.int64]) -> float:
        # counted here: scikit-learn's checks would take minutes over thousands of resamples
        right, many = np.bincount(y[y == guess], minlength=len(names)), np.bincount(y, minlength=len(names))
        either = many + np.bincount(guess, minlength=len(names))
        return float(np.mean(2 * right[either > 0] / either[either > 0]))

    return _estimates({"accuracy": _accuracy, "macro_f1": macro_f1}, codes, groups, seed)


def binary_agreement(
    actual: Sequence[bool], predicted: Sequence[bool], *, groups: Sequence[Any] | None = None, seed: int = 0
) -> dict[str, Estimate]:
    """`accuracy`, `precision`, `recall` and `f1` of a judge's yes or no, with yes as the positive class; undefined ones
    are left out."""
    measures: dict[str, Callable[..., float]] = {
        "accuracy": _accuracy,
        "precision": lambda y, guess: _ratio((y & guess).sum(), guess.sum()),
        "recall": lambda y, guess: _ratio((y & guess).sum(), y.sum()),
        "f1": lambda y, guess: _ratio(2 * (y & guess).sum(), y.sum() + guess.sum()),
    }
    return _estimates(measures, [list(map(bool, side)) for side in (actual, predicted)], groups, seed)


def _estimates(
    measures: Mapping[str, Callable[..., float]], sides: Sequence[Any], groups: Sequence[Any] | None, seed: int
) -> dict[str, Estimate]:
    estimates = {name: bootstrap_estimate(m, *sides, groups=groups, seed=seed) for name, m in measures.items()}
    return {name: estimate for name, estimate in estimates.items() if estimate is not None}


def _accuracy(y: NDArray[Any], guess: NDArray[Any]) -> float:
    return float((y == guess).mean())


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else _NAN
