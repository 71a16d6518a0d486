"""A logistic regression over n-grams: the type classifier that needs only what is shipped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from typedrag.core.question_types import QuestionType
from typedrag.programs.typed_rag.type_classifiers.base import ProbabilityClassifier

WEIGHTS = Path(__file__).with_name("linear.npz")
_START, _END = "\u2402", "\u2403"
_TOKEN = re.compile(rf"\b\w+\b|[?!{_START}{_END}]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")

Analyzer = Callable[[str], list[str]]


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
        weights, words, characters = _load()
        rows_of_words, tfidf_of_words = words(question)
        rows_of_characters, tfidf_of_characters = characters(question)
        rows = np.concatenate([rows_of_words, rows_of_characters + len(weights.words)])
        tfidf = np.concatenate([tfidf_of_words, tfidf_of_characters])
        odds = softmax((tfidf @ weights.coefficients[rows] + weights.intercept) / weights.temperature)
        return {QuestionType(t): odd for t, odd in zip(weights.types, odds.tolist(), strict=True)}


@cache
def _load() -> tuple[LinearWeights, TfIdf, TfIdf]:
    """The weights, and what makes features of words and of characters."""
    weights = LinearWeights.load(WEIGHTS)
    split = len(weights.words)
    words = TfIdf(word_ngrams, weights.words, weights.idf[:split])
    return weights, words, TfIdf(character_ngrams, weights.characters, weights.idf[split:])


def word_ngrams(question: str) -> list[str]:
    """N-grams of one to three words, with the marks ? and !, and with marks of each sentence's begin and end.

    The first words of a question tell more about its type than the places of the others, also at the end of a story.

    Example:
        >>> [n for n in word_ngrams("Why so?") if " " not in n]
        ['␂', 'why', 'so', '?', '␃']
    """
    sentences = (_TOKEN.findall(f"{_START} {text} {_END}") for text in _SENTENCE_END.split(question.lower()))
    return [" ".join(s[i : i + n]) for s in sentences for n in (1, 2, 3) for i in range(len(s) - n + 1)]


def character_ngrams(question: str) -> list[str]:
    """N-grams of two to four characters within words, with a blank at either end of a word.

    Example:
        >>> character_ngrams("Why")
        [' w', 'wh', 'hy', 'y ', ' wh', 'why', 'hy ', ' why', 'why ']
    """
    words = [f" {word} " for word in question.lower().split()]
    return [word[i : i + n] for word in words for n in (2, 3, 4) for i in range(len(word) - n + 1)]


class TfIdf:
    """Weighs the n-grams of a text that are in a vocabulary: sublinear frequency times idf, scaled to length 1, as
    scikit-learn's `TfidfVectorizer` does.

    Args:
        analyzer: Returns a text's n-grams.
        vocabulary: The n-grams.
        idf: The idf of each.
    """

    def __init__(self, analyzer: Analyzer, vocabulary: NDArray[np.str_], idf: NDArray[np.float32]) -> None:
        self._analyzer = analyzer
        self._rows = {term: row for row, term in enumerate(vocabulary.tolist())}
        self._idf = idf

    def __call__(self, text: str) -> tuple[NDArray[np.intp], NDArray[np.floating[Any]]]:
        """The places in the vocabulary of the n-grams of a text, and their weights."""
        counts = Counter(row for term in self._analyzer(text) if (row := self._rows.get(term)) is not None)
        rows = np.fromiter(counts, np.intp, len(counts))
        weights = (1 + np.log(np.fromiter(counts.values(), np.float64, len(counts)))) * self._idf[rows]
        return rows, weights / (np.linalg.norm(weights) or 1)


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays that `save_arrays` wrote, with real numbers at single precision."""
    with np.load(path, allow_pickle=False) as arrays:
        return {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in arrays.items()}


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays, with real numbers at half precision."""
    small: dict[str, Any] = {n: a.astype(np.float16) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    np.savez_compressed(path, **small)


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The softmax over the last axis.

    Example:
        >>> softmax(np.log([1.0, 3.0])).round(2).tolist()
        [0.25, 0.75]
    """
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)
