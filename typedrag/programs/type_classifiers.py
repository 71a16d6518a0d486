"""Of what type is a question? One interface, several makes.

Each make is a `dspy.Module` that takes a `question` and returns a `dspy.Prediction` with
`question_type` and `probability`, 0 to 1, or None where the make gives none.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import numpy as np
from numpy.typing import NDArray

from typedrag.asking import Reply, ask
from typedrag.programs.options import Options
from typedrag.question_types import QuestionType
from typedrag.records import Step, Usage
from typedrag.signatures import ClassifyQuestion
from typedrag.trail import Stopwatch, record

WEIGHTS = Path(__file__).with_name("type_classifier.npz")

WORD_NGRAMS = {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b|[?!]"}
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
        types: Question types, in the order of the columns.
    """

    words: NDArray[np.str_]
    characters: NDArray[np.str_]
    idf: NDArray[np.float32]
    coefficients: NDArray[np.float32]
    intercept: NDArray[np.float32]
    types: NDArray[np.str_]

    @classmethod
    def load(cls, path: Path) -> LinearWeights:
        """Read weights that `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**{f: arrays[f] for f in cls._fields})

    def save(self, path: Path) -> None:
        """Write the weights, with real numbers at half precision."""
        small = {f: v.astype(np.float16) if v.dtype.kind == "f" else v for f, v in self._asdict().items()}
        np.savez_compressed(path, **small)


class LinearTypeClassifier(dspy.Module):
    """Names a question's type without an LM, by the model shipped in `type_classifier.npz`.

    It is trained on NF-CATS (Bolotova et al. 2022, MIT licence, notice in
    `type_classifier.NOTICE`) by `scripts/train_type_classifier.py`, which prints how well it does.
    """

    def forward(self, question: str) -> dspy.Prediction:
        """The likeliest type."""
        watch = Stopwatch()
        probabilities = _linear_model().probabilities(question)
        best = max(probabilities, key=lambda t: probabilities[t])
        return _classified(question, best, probabilities[best], watch.seconds, Usage())


class LMTypeClassifier(dspy.Module):
    """Names a question's type by asking the LM."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.classify = dspy.Predict(ClassifyQuestion)
        self._retries = options.retries

    def forward(self, question: str) -> dspy.Prediction:
        """The type that the LM names.

        Raises:
            StepFailed: If its reply cannot be parsed.
            LMUnavailable: If it cannot be reached.
        """
        reply: Reply = ask("classify", self.classify, retries=self._retries, question=question)
        return _classified(question, reply.prediction.question_type, None, reply.seconds, reply.usage)


def build_type_classifier(options: Options) -> dspy.Module:
    """The make that the options name."""
    return LinearTypeClassifier() if options.type_classifier == "linear" else LMTypeClassifier(options)


def _classified(
    question: str, question_type: QuestionType, probability: float | None, seconds: float, usage: Usage
) -> dspy.Prediction:
    sure = "" if probability is None else f" ({probability:.2f})"
    record(Step("classify", question, f"{question_type}{sure}", seconds=seconds, usage=usage))
    return dspy.Prediction(question_type=question_type, probability=probability)


class _LinearModel:
    def __init__(self, weights: LinearWeights) -> None:
        self._weights = weights
        split = len(weights.words)
        self._words = vectorizer(WORD_NGRAMS, weights.words, weights.idf[:split])
        self._characters = vectorizer(CHARACTER_NGRAMS, weights.characters, weights.idf[split:])
        self._types = [QuestionType(t) for t in weights.types]

    def probabilities(self, question: str) -> dict[QuestionType, float]:
        from sklearn import config_context

        split = len(self._weights.words)
        with config_context(assume_finite=True, skip_parameter_validation=True):  # half of its time
            logits = (
                self._words.transform([question]) @ self._weights.coefficients[:split]
                + self._characters.transform([question]) @ self._weights.coefficients[split:]
                + self._weights.intercept
            )[0]
        odds = np.exp(logits - logits.max())
        return dict(zip(self._types, (odds / odds.sum()).tolist(), strict=True))


def vectorizer(ngrams: dict[str, Any], vocabulary: Any = None, idf: Any = None, min_df: int = 1) -> Any:
    """A scikit-learn TF-IDF vectorizer over these n-grams: fitted if a vocabulary is given."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    known = None if vocabulary is None else {str(term): i for i, term in enumerate(vocabulary)}
    made = TfidfVectorizer(sublinear_tf=True, min_df=min_df, vocabulary=known, **ngrams)
    if idf is not None:
        made.idf_ = idf.astype(np.float32)
    return made


@cache
def _linear_model() -> _LinearModel:
    weights = LinearWeights.load(WEIGHTS)
    return _LinearModel(
        weights._replace(**{f: getattr(weights, f).astype(np.float32) for f in ("idf", "coefficients", "intercept")})
    )
