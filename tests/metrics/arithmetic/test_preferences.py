from __future__ import annotations

import random

import numpy as np
import pytest

from typedrag.metrics.judges.preference import GRID, best_weights, cross_validated, points


def pairs(n: int, weights: tuple[float, float, float], noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """What the better of two answers covers more, where people go by these weights, but for the noise."""
    rng = random.Random(seed)
    differences = []
    for _ in range(n):
        sides = [np.array([rng.randrange(6) / 5 for _ in range(3)]) for _ in range(2)]
        first, second = (float(np.dot(weights, side)) + rng.gauss(0, noise) for side in sides)
        differences.append(sides[0] - sides[1] if first > second else sides[1] - sides[0])
    return np.array(differences)


def test_the_grid_has_all_weights_but_none_at_all():
    assert GRID.shape == (124, 3)


def test_weights_that_people_go_by_are_found():
    differences = pairs(300, (1.0, 0.5, -1.0))
    core, background, follow_up = best_weights(differences)
    assert (background / core, follow_up / core) == (0.5, -1.0)
    assert points(differences, np.array([[1.0, 0.5, -1.0]])).mean() > 0.95
    assert cross_validated(differences, [f"q{n}" for n in range(300)]) > 0.95


def test_what_is_fitted_to_chance_is_no_better_than_chance():
    """The accuracy on the pairs that weights were chosen by is too good; that of the cross-validation is not."""
    differences = pairs(60, (0.0, 0.0, 0.0), noise=1.0)
    fitted = points(differences, best_weights(differences)[None]).mean()
    assert fitted > 0.58
    assert cross_validated(differences, [f"q{n}" for n in range(60)]) < fitted - 0.05


def test_the_pairs_of_a_question_are_in_one_fold():
    """Each question has a pair and its opposite: whoever sees the one would get the other wrong."""
    one = pairs(10, (1.0, 0.0, 0.0))
    differences = np.concatenate([one, one])
    questions = [f"q{n}" for n in range(10)] * 2
    halves = cross_validated(differences[:10], questions[:10]), cross_validated(differences, questions)
    assert halves[0] == pytest.approx(halves[1])
    assert cross_validated(one[:2], ["q", "q"]) is None
