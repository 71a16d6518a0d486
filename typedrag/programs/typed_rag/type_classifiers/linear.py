"""A logistic regression over n-grams: the type classifier that needs only what is shipped."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from typedrag.programs.typed_rag.type_classifiers.classifying import ProbabilityClassifier
from typedrag.programs.typed_rag.type_classifiers.ngrams import TfIdf, character_ngrams, word_ngrams
from typedrag.programs.typed_rag.type_classifiers.weights import load_arrays, save_arrays, softmax
from typedrag.question_types import QuestionType

WEIGHTS = Path(__file__).with_name("linear.npz")


class LinearWeights(NamedTuple):
    """A logistic regression over TF-IDF weighted word and character n-grams.

    Attributes:
        words: Word n-grams, in the order of the first rows of `idf` and `coefficients`.
        characters: Character n-grams, in the order of the rows that follow.
        idf: [n-grams]
        coefficients: [n-grams, types]
        intercept: [types]
        temperature: [] The divisor of logits that calibrates the probabilities.
        types: Question types, in the order of the columns.
    """

    words: NDArray[np.str_]
    characters: NDArray[np.str_]
    idf: NDArray[np.float32]
    coefficients: NDArray[np.float32]
    intercept: NDArray[np.float32]
    temperature: NDArray[np.float32]
    types: NDArray[np.str_]

    @classmethod
    def load(cls, path: Path) -> LinearWeights:
        """Read weights that `save` wrote."""
        return cls(**load_arrays(path))

    def save(self, path: Path) -> None:
        """Write the weights, with real numbers at half precision."""
        save_arrays(path, self._asdict())


class LinearTypeClassifier(ProbabilityClassifier):
    """Names a question's type without an LM, by the model shipped in `linear.npz`.

    It is trained on NF-CATS (Bolotova et al. 2022, MIT licence, notice in `NOTICE`) by
    `scripts/train_type_classifier.py`, which prints its scores.
    """

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        """The probability of each type; see `ProbabilityClassifier.probabilities`."""
        return _model().probabilities(question)


class LinearModel:
    """A logistic regression with loaded weights."""

    def __init__(self, weights: LinearWeights) -> None:
        self._weights = weights
        split = len(weights.words)
        self._words = TfIdf(word_ngrams, weights.words, weights.idf[:split])
        self._characters = TfIdf(character_ngrams, weights.characters, weights.idf[split:])
        self._types = [QuestionType(t) for t in weights.types]

    def probabilities(self, question: str) -> dict[QuestionType, float]:
        """The probability of each type."""
        weights = self._weights
        words, of_words = self._words(question)
        characters, of_characters = self._characters(question)
        rows = np.concatenate([words, characters + len(weights.words)])
        logits = np.concatenate([of_words, of_characters]) @ weights.coefficients[rows] + weights.intercept
        return dict(zip(self._types, softmax(logits / weights.temperature).tolist(), strict=True))


@cache
def _model() -> LinearModel:
    return LinearModel(LinearWeights.load(WEIGHTS))
