"""Calibration: do answers come true as often as their probabilities say?"""

from collections.abc import Sequence
from typing import Any

_LOWEST, _HIGHEST = -3.0, 3.0
"""Bounds of the logarithm of a temperature."""


def expected_calibration_error(probabilities: Sequence[float], right: Sequence[bool], bins: int = 10) -> float:
    """The distance between the mean probability of answers and the share that is right (Guo et al. 2017, equation 3).

    Answers are put into bins of equal width by their probability; each bin's distance is weighted by its number of
    answers.

    Args:
        probabilities: The probability of each given answer, 0 to 1.
        right: True for each answer that is right.
        bins: The number of bins.

    Returns:
        0 at best, 1 at worst.

    Raises:
        ValueError: If there are none, or their numbers differ.
    """
    import numpy as np

    if len(probabilities) != len(right) or not probabilities:
        raise ValueError(f"{len(probabilities)} probabilities and {len(right)} answers do not compare")
    predicted = np.asarray(probabilities, dtype=float)
    place = np.minimum((predicted * bins).astype(int), bins - 1)
    gaps = np.bincount(place, weights=predicted - np.asarray(right, dtype=float), minlength=bins)
    return float(np.abs(gaps).sum() / len(predicted))


def fit_temperature(logits: Any, labels: Sequence[int]) -> float:
    """The divisor of logits that makes the labels likeliest (Guo et al. 2017, section 4.2).

    Args:
        logits: [answers, labels], of answers that the model was not trained on.
        labels: The place of the right label of each answer.

    Returns:
        A value above 1 if the model is too sure, below 1 if it is not sure enough.
    """
    import numpy as np
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    values, places = np.asarray(logits, dtype=float), np.asarray(labels)
    rows = np.arange(len(places))

    def loss(log_temperature: float) -> float:
        return -float(log_softmax(values / np.exp(log_temperature), axis=-1)[rows, places].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(_LOWEST, _HIGHEST), method="bounded").x))
