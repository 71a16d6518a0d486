"""Agreement of a judge with people: correlations, order of pairs and accuracy, each with an interval.

Higher scores and higher labels are always better: negate ranks. `groups` names the question
that each observation belongs to; observations of one question are resampled together. A value is
None if it is undefined, such as the correlation of a judge whose scores are all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from typedrag.core.records import Estimate
from typedrag.metrics.arithmetic.estimate import bootstrap_estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
