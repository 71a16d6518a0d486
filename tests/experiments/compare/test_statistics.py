import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, ttest_rel

from typedrag.experiments.held_out import (
    FLIPS,
    Pair,
    Verdict,
    estimate_difference,
    fewest_questions,
    permutation_p_values,
    questions_needed,
)
from typedrag.metrics.estimate import mean_estimate, mean_estimates

quick = settings(max_examples=40, deadline=None)
scores = st.floats(0, 1).map(lambda x: round(x, 3))
pairs = st.lists(st.tuples(scores, scores), min_size=10, max_size=30)


def normal(n: int, shift: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    baseline = rng.normal(0.5, 0.2, n)
    return baseline + rng.normal(shift, 0.1, n), baseline


def paired(other, baseline, seed=0) -> Verdict:
    return estimate_difference(Pair(list(baseline), list(other), range(len(other))), seed=seed)


@quick
@given(pairs)
def test_the_interval_turns_round_when_the_runs_do(rows):
    one, two = zip(*rows, strict=True)
    forth, back = paired(one, two, seed=3), paired(two, one, seed=3)
    assert forth.difference.value == pytest.approx(-back.difference.value)
    assert forth.difference.low == pytest.approx(-back.difference.high)
    assert (forth.baseline, forth.other) == (back.other, back.baseline)
    assert permutation_p_values([np.subtract(one, two)]) == permutation_p_values([np.subtract(two, one)])


@quick
@given(pairs)
def test_intervals_hold_the_values_and_stay_within_what_was_seen(rows):
    one, two = zip(*rows, strict=True)
    found = paired(one, two)
    estimates = (found.baseline, found.other, found.difference)
    for estimate, seen in zip(estimates, (two, one, np.subtract(one, two)), strict=True):
        assert min(seen) - 1e-9 <= estimate.low <= estimate.high <= max(seen) + 1e-9
        assert estimate.value == pytest.approx(np.mean(seen))
        assert estimate.n == len(rows)


def test_a_mean_has_the_same_interval_alone_and_in_a_pair():
    one, two = normal(50, 0.1)
    found = paired(one, two, seed=4)
    for estimate, values in ((found.other, one), (found.baseline, two)):
        alone = mean_estimate(list(values), seed=4)
        assert (estimate.value, estimate.low, estimate.high) == pytest.approx((alone.value, alone.low, alone.high))


def test_a_single_question_and_none():
    one = paired([1.0], [0.25]).difference
    assert (one.value, one.interval) == (0.75, None)
    assert paired([], []).difference is None
    with pytest.raises(ValueError, match="2, 1 observations"):
        mean_estimates([1, 2], [1])


@quick
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=10))
def test_few_differences_are_tested_by_all_their_signs(differences):
    signs = itertools.product((1, -1), repeat=len(differences))
    sums = [abs(sum(s * d for s, d in zip(flip, differences, strict=True))) for flip in signs]
    share = sum(s >= abs(sum(differences)) for s in sums) / len(sums)
    assert permutation_p_values([differences]) == [pytest.approx(share)]


@quick
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40), st.floats(0.1, 1000))
def test_p_is_a_probability_that_no_unit_changes(differences, unit):
    rows = [differences, [d * unit for d in differences], [*differences, 0.0, 0.0]]
    first, scaled, padded = permutation_p_values(rows, flips=500)
    assert 0 < first <= 1
    assert first == scaled == padded


def test_tests_in_company_say_what_they_say_alone():
    rows = [np.subtract(*normal(n, 0.02, seed=n)) for n in (5, 12, 40, 200)]
    together = permutation_p_values([*rows, []])
    assert together[-1] is None
    for row, p in zip(rows, together, strict=False):
        assert permutation_p_values([row])[0] == pytest.approx(p, abs=0.01)


@pytest.mark.parametrize(("n", "shift"), [(200, 0.0), (200, 0.01), (400, 0.012)])
def test_large_normal_samples_agree_with_the_t_test(n, shift):
    one, two = normal(n, shift, seed=7)
    by_t = ttest_rel(one, two)
    assert permutation_p_values([one - two]) == [pytest.approx(by_t.pvalue, abs=0.01)]
    low, high = by_t.confidence_interval()
    difference = paired(one, two).difference
    assert (difference.low, difference.high) == pytest.approx((low, high), abs=0.1 * (high - low))


def test_without_a_difference_p_is_uniform():
    rng = np.random.default_rng(11)
    p_values = permutation_p_values(list(rng.normal(size=(400, 30))))
    assert kstest(p_values, "uniform").pvalue > 0.05
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=0.025)


def test_a_sure_difference_survives_correction_for_a_thousand_tests():
    rng = np.random.default_rng(2)
    sure = rng.normal(1, 0.1, 100)
    p_values = permutation_p_values([sure])
    assert p_values == [pytest.approx(2 / (FLIPS + 1))]
    assert p_values[0] * 1000 < 0.05


@pytest.mark.parametrize("tests", [1, 2, 9, 100])
def test_so_many_questions_and_no_fewer_can_show_a_difference(tests):
    n = fewest_questions(tests)
    enough, too_few = permutation_p_values([[1.0] * n, [1.0] * (n - 1)])
    assert enough * tests < 0.05 <= too_few * tests


def test_as_many_questions_as_needed_show_the_difference_four_times_in_five():
    rng = np.random.default_rng(3)
    n = questions_needed(list(rng.normal(0.1, 0.3, 20_000)))
    assert n == pytest.approx(71, abs=3)  # (2.802 * 0.3 / 0.1)^2
    p_values = permutation_p_values(list(rng.normal(0.1, 0.3, (300, n))), flips=2000)
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.8, abs=0.07)


@pytest.mark.parametrize(("differences", "needed"), [([], None), ([0.5], None), ([0, 0], None), ([0.5, 0.5], 6)])
def test_how_many_questions_where_there_is_little_to_go_by(differences, needed):
    assert questions_needed(differences) == needed
