import numpy as np
import pytest

from benchmarks.calibration import expected_calibration_error, fit_temperature


def test_calibration_error_of_extremes():
    assert expected_calibration_error([1.0] * 4, [True] * 4) == 0
    assert expected_calibration_error([1.0] * 4, [False] * 4) == 1
    assert expected_calibration_error([0.5] * 4, [True, False, False, False]) == 0.25
    assert expected_calibration_error([0.2, 0.8], [True, False], bins=1) == 0  # one bin hides it
    # of two at 0.9 both are right, of two at 0.6 one: (2 * 0.1 + 2 * 0.1) / 4
    assert expected_calibration_error([0.9, 0.9, 0.6, 0.6], [True, True, True, False]) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="0 probabilities"):
        expected_calibration_error([], [])


def test_the_temperature_of_odds_that_are_too_high():
    """One of four is wrong where the odds are said to be 9 to 1, and should be 3 to 1: ln 9 / ln 3."""
    assert fit_temperature([[np.log(9), 0.0]] * 4, [0, 0, 0, 1]) == pytest.approx(2, abs=0.005)


def test_the_temperature_that_logits_were_sharpened_by_is_found():
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(4000, 5))
    odds = np.exp(logits)
    labels = [int(rng.choice(5, p=row / row.sum())) for row in odds]
    assert fit_temperature(logits, labels) == pytest.approx(1, abs=0.06)
    assert fit_temperature(3 * logits, labels) == pytest.approx(3, abs=0.18)
    assert fit_temperature(logits / 2, labels) == pytest.approx(0.5, abs=0.03)
    errors = [calibration_error(logits, labels, temperature) for temperature in (1 / 3, 1)]
    assert errors[1] < 0.05 < errors[0]


def calibration_error(logits, labels, temperature):
    p = np.exp(logits / temperature)
    p /= p.sum(axis=1, keepdims=True)
    right = p.argmax(axis=1) == labels
    return expected_calibration_error(p.max(axis=1).tolist(), right.tolist())
