"""N-grams of a question, and the TF-IDF weights of those in a vocabulary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from typedrag.extras import importing

_START, _END = "\u2402", "\u2403"
_TOKEN = re.compile(rf"\b\w+\b|[?!{_START}{_END}]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")

Analyzer = Callable[[str], list[str]]


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
    """Weighs the n-grams of a text that are in a vocabulary: sublinear frequency times idf, scaled to length 1.

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


def vectorizer(analyzer: Analyzer, min_df: int = 1) -> Any:
    """A scikit-learn vectorizer that learns a vocabulary and weighs like `TfIdf`."""
    with importing("sklearn"):
        from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer=analyzer, sublinear_tf=True, min_df=min_df)
