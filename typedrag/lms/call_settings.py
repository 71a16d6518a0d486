"""LM settings of single calls: drawing another reply, leaving room for a long one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import dspy


def with_settings(predictor: dspy.Module, settings: Mapping[str, Any]) -> Callable[..., dspy.Prediction]:
    """A predictor that is called with these settings, on top of those that `ask` retries with.

    The rollout numbers of both are added up. Each retry of each draw thus has its own place in DSPy's
    cache, if the numbers of the draws lie further apart than there are retries.
    """

    def call(**inputs: Any) -> dspy.Prediction:
        again = inputs.pop("config", {})
        rollout = settings.get("rollout_id", 0) + again.get("rollout_id", 0)
        config = {**settings, **again, **({"rollout_id": rollout} if rollout else {})}
        return predictor(**inputs, config=config)

    return call


def room_for(tokens: int) -> dict[str, int]:
    """The settings that let the configured LM write this many tokens; none if it may already."""
    limit = dspy.settings.lm.kwargs.get("max_tokens")
    return {"max_tokens": tokens} if limit and limit < tokens else {}
