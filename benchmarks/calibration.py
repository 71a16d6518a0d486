"""Are things as probable as they are said to be?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_LOWEST, _HIGHEST = -3.0, 3.0
"""Of the logarithm of a temperature."""


def expected_calibration_error(probabilities: Sequence[float], right: Sequence[bool], bins: int = 10) -> float:
    """How far the mean probability of answers is from the share that is right (Guo et al. 2017, equation 3).

    Answers are put into bins of equal width by their probability; the distances of the bins count by
    their numbers of answers.

    Args:
        probabilities: That each answer was given, 0 to 1.
        right: Whether it was right.
        bins: How many.

    Returns:
        0 at best, 1 at worst.

    Raises:
        ValueError: If there are none, or not as many of the one as of the other.
    """
    import numpy as np

    if len(probabilities) != len(right) or not probabilities:
        raise ValueError(f"{len(probabilities)} probabilities and {len(right)} answers do not compare")
    said = np.asarray(probabilities, dtype=float)
    place = np.minimum((said * bins).astype(int), bins - 1)
    gaps = np.bincount(place, weights=said - np.asarray(right, dtype=float), minlength=bins)
    return float(np.abs(gaps).sum() / len(said))


def fit_temperature(logits: Any, labels: Sequence[int]) -> float:
    """What logits are divided by for the labels to be likeliest (Guo et al. 2017, section 4.2).

    Args:
        logits: [answers, labels], of answers that the model was not trained on.
        labels: For each answer the place of the label that is right.

    Returns:
        Above 1 where the model is too sure, below 1 where it is not sure enough.
    """
    import numpy as np
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    values, places = np.asarray(logits, dtype=float), np.asarray(labels)
    rows = np.arange(len(places))

    def loss(log_temperature: float) -> float:
        return -float(log_softmax(values / np.exp(log_temperature), axis=-1)[rows, places].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(_LOWEST, _HIGHEST), method="bounded").x))
