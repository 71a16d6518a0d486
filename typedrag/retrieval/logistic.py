"""The small models that typedrag brings: logistic regressions with weights in JSON beside the code that uses them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, FiniteFloat

from typedrag.files.text_files import write_text


class LogisticModel(BaseModel):
    """A logistic regression on named features.

    Example:
        >>> model = LogisticModel(intercept=-2.0, weights={"cosine": 4.0})
        >>> model.probability({"cosine": 0.5}), round(model.probability({"cosine": 1.0}), 2)
        (0.5, 0.88)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    intercept: FiniteFloat
    """The log odds where all features are at their means."""
    weights: dict[str, FiniteFloat]
    """The weight of each feature."""
    mean: dict[str, FiniteFloat] = {}
    """The mean of each feature, by default 0; also its value where it is NaN."""
    scale: dict[str, FiniteFloat] = {}
    """The divisor of each feature's distance from its mean, by default 1."""

    def probability(self, features: Mapping[str, float]) -> float:
        """The probability of the trained outcome, from 0 to 1."""
        log_odds = self.intercept
        for name, weight in self.weights.items():
            if not math.isnan(features[name]):
                log_odds += weight * (features[name] - self.mean.get(name, 0.0)) / self.scale.get(name, 1.0)
        return 1 / (1 + math.exp(-log_odds))

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        write_text(path, self.model_dump_json(indent=1, exclude_defaults=True) + "\n")

    @staticmethod
    @cache
    def load(path: Path) -> LogisticModel:
        """Read a model that `save` wrote; each path once."""
        return LogisticModel.model_validate_json(path.read_text("utf-8"))
