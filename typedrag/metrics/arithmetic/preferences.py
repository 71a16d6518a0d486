"""The weights of sub-question coverage that predict which of two answers is better (sub-question coverage, section 4).

An answer's rating is the weighted sum of its coverage. Of two answers, the one with the higher rating is predicted to
be the better one; equal ratings count half, like a coin toss. Only the ratios of weights matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GRID: Array = np.array([w for w in product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=3) if any(w)])
"""[n, 3] The weights of core, background and follow-up coverage that the paper tries."""
_EQUAL = 1e-9
"""Ratings that differ by less count as equal: sums of thirds are not exact."""


def points(differences: Array, weights: Array) -> Array:
    """The points of weights for each pair: 1 if they predict it, 0 if not, 0.5 for equal ratings.

    Args:
        differences: [pairs, 3] The coverage of the better answer less that of the worse, for each type.
        weights: [n, 3]

    Returns:
        [n, pairs]

    Example:
        >>> weights = np.array([[1.0, 0.5, -1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> points(np.array([[0.5, 0.0, -0.5]]), weights).tolist()
        [[1.0], [0.5], [0.0]]
    """
    ratings = np.asarray(weights) @ np.asarray(differences).T
    return np.where(np.abs(ratings) < _EQUAL, 0.5, ratings > 0)


def best_weights(differences: Array, weights: Array = GRID) -> Array:
    """The weights that predict most pairs; of equally good ones, those nearest to their mean, which are least likely
    to be good by chance.

    Returns:
        [3]
    """
    accuracies = points(differences, weights).mean(axis=1)
    equals = weights[accuracies >= accuracies.max() - _EQUAL]
    nearest: Array = equals[np.argmin(((equals - equals.mean(axis=0)) ** 2).sum(axis=1))]
    return nearest


def cross_validated(differences: Array, questions: Sequence[str], folds: int = 5) -> float | None:
    """The share of pairs that weights predict which were found without the pair's question; None with one question.

    Args:
        differences: [pairs, 3]
        questions: [pairs] The question of each pair, whose pairs are all in one fold.
    """
    fold_of = {question: n % folds for n, question in enumerate(sorted(set(questions)))}
    if len(fold_of) < 2:
        return None
    fold = np.array([fold_of[question] for question in questions])
    unseen = [
        points(differences[fold == n], best_weights(differences[fold != n])[None])[0]
        for n in range(min(folds, len(fold_of)))
    ]
    return float(np.concatenate(unseen).mean())
