"""Weights of sub-question coverage that predict what people, or another judge, say of answers."""

from typedrag.optimizers.sweep.weights.rated import RatedAnswer, rated_answers, read_rated
from typedrag.optimizers.sweep.weights.run import WeightsResult, run_weights
from typedrag.optimizers.sweep.weights.search import Pairs, Searched, Weights, pairs_of, search_weights

__all__ = [
    "Pairs",
    "RatedAnswer",
    "Searched",
    "Weights",
    "WeightsResult",
    "pairs_of",
    "rated_answers",
    "read_rated",
    "run_weights",
    "search_weights",
]
