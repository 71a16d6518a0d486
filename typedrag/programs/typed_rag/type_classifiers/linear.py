"""A logistic regression over n-grams: the make that needs nothing but what is shipped."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from typedrag.programs.typed_rag.type_classifiers.classifying import ProbabilityClassifier
from typedrag.programs.typed_rag.type_classifiers.weights import load_arrays, save_arrays, softmax
from typedrag.question_types import QuestionType

WEIGHTS = Path(__file__).with_name("linear.npz")

_START, _END = "\u2402", "\u2403"


def _marked(question: str) -> str:
    return f"{_START} {question.lower()} {_END}"


WORD_NGRAMS = {
    "ngram_range": (1, 3),
    "token_pattern": rf"(?u)\b\w+\b|[?!{_START}{_END}]",
    "preprocessor": _marked,  # how a question begins says more than where else its words stand
}
CHARACTER_NGRAMS = {"ngram_range": (2, 4), "analyzer": "char_wb"}
"""What the linear model looks at; with sublinear term frequencies, weighted by idf."""


class LinearWeights(NamedTuple):
    """A logistic regression over TF-IDF weighted word and character n-grams.

    Attributes:
        words: Word n-grams, in the order of the first rows of `idf` and `coefficients`.
        characters: Character n-grams, in the order of the rows that follow.
        idf: [n-grams]
        coefficients: [n-grams, types]
        intercept: [types]
        temperature: [] What logits are divided by, so that probabilities are as high as answers are right.
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
        return cls(**load_arrays(path, cls._fields))

    def save(self, path: Path) -> None:
        """Write the weights, with real numbers at half precision."""
        save_arrays(path, self._asdict())


class LinearTypeClassifier(ProbabilityClassifier):
    """Names a question's type without an LM, by the model shipped in `linear.npz`.

    It is trained on NF-CATS (Bolotova et al. 2022, MIT licence, notice in `NOTICE`) by
    `scripts/train_type_classifier.py`, which prints how well it does.
    """

    reads_english_only = True

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        """Of each type; see `ProbabilityClassifier.probabilities`."""
        return _model().probabilities(question)


class LinearModel:
    """The weights at work."""

    def __init__(self, weights: LinearWeights) -> None:
        self._weights = weights
        split = len(weights.words)
        self._words = vectorizer(WORD_NGRAMS, weights.words, weights.idf[:split])
        self._characters = vectorizer(CHARACTER_NGRAMS, weights.characters, weights.idf[split:])
        self._types = [QuestionType(t) for t in weights.types]

    def probabilities(self, question: str) -> dict[QuestionType, float]:
        """Of each type."""
        from sklearn import config_context

        weights, split = self._weights, len(self._weights.words)
        with config_context(assume_finite=True, skip_parameter_validation=True):  # half of its time
            logits = (
                self._words.transform([question]) @ weights.coefficients[:split]
                + self._characters.transform([question]) @ weights.coefficients[split:]
                + weights.intercept
            )[0]
        return dict(zip(self._types, softmax(logits / weights.temperature).tolist(), strict=True))


def vectorizer(ngrams: dict[str, Any], vocabulary: Any = None, idf: Any = None, min_df: int = 1) -> Any:
    """A scikit-learn TF-IDF vectorizer over these n-grams: fitted if a vocabulary is given."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    known = None if vocabulary is None else {str(term): i for i, term in enumerate(vocabulary)}
    made = TfidfVectorizer(sublinear_tf=True, min_df=min_df, vocabulary=known, **ngrams)
    if idf is not None:
        made.idf_ = idf.astype(np.float32)
    return made


@cache
def _model() -> LinearModel:
    return LinearModel(LinearWeights.load(WEIGHTS))
