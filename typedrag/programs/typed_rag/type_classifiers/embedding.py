"""A logistic regression over the embeddings of a question."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from typedrag.programs.typed_rag.type_classifiers.classifying import ProbabilityClassifier
from typedrag.programs.typed_rag.type_classifiers.encoder import embed
from typedrag.programs.typed_rag.type_classifiers.weights import load_arrays, save_arrays, softmax
from typedrag.question_types import QuestionType

EMBEDDING_WEIGHTS = Path(__file__).with_name("embedding.npz")


class EmbeddingWeights(NamedTuple):
    """A logistic regression over the embeddings of `encoder.embed`.

    Attributes:
        coefficients: [layers * dimensions, types]
        intercept: [types]
        temperature: []; see `LinearWeights`.
        types: Question types, in the order of the columns.
    """

    coefficients: NDArray[np.float32]
    intercept: NDArray[np.float32]
    temperature: NDArray[np.float32]
    types: NDArray[np.str_]

    @classmethod
    def load(cls, path: Path) -> EmbeddingWeights:
        """Read weights that `save` wrote."""
        return cls(**load_arrays(path, cls._fields))

    def save(self, path: Path) -> None:
        """Write the weights, with real numbers at half precision."""
        save_arrays(path, self._asdict())


class EmbeddingTypeClassifier(ProbabilityClassifier):
    """Names a question's type by the model shipped in `embedding.npz`, over MiniLM's embeddings of it.

    It is trained like `LinearTypeClassifier`.
    """

    reads_english_only = True

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        """The probability of each type; see `ProbabilityClassifier.probabilities`."""
        weights = _weights()
        logits = embed([question])[0] @ weights.coefficients + weights.intercept
        types = (QuestionType(t) for t in weights.types)
        return dict(zip(types, softmax(logits / weights.temperature).tolist(), strict=True))


@cache
def _weights() -> EmbeddingWeights:
    return EmbeddingWeights.load(EMBEDDING_WEIGHTS)
