"""ROUGE against long answers, and com-ROUGE against the answers to a question's sub-aspects
(RichRAG, section 4.1).

Computed by `rouge-score`, Google Research's reimplementation. Its own words have only the letters a to z
and digits; here they may have letters of all scripts, which changes nothing for English.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any, ClassVar, Literal

import dspy

from typedrag.extras import importing
from typedrag.metrics.gold import gold_texts, sub_answers
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.texts.words import words_of

Part = Literal["precision", "recall", "fmeasure"]
KINDS = ("rouge2", "rougeL")
"""The kinds of ROUGE that RichRAG reports."""


def rouge(text: str, reference: str, part: Part = "fmeasure", stemmer: bool = False) -> dict[str, float]:
    """ROUGE-2 and ROUGE-L of a text against a reference.

    Recall is the share of the reference that the text has. With a stemmer, words with the same Porter stem are equal.

    Example:
        >>> rouge("the sky is blue today", "the sky is grey", part="recall")["rougeL"]
        0.75
        >>> round(rouge("the sky is blue today", "the sky is grey")["rouge2"], 3)
        0.571
    """
    scores = rouge_scorer(KINDS, stemmer).score(reference, text)
    return {kind: float(getattr(scores[kind], part)) for kind in KINDS}


def best_rouge(
    text: str, references: Sequence[str], part: Part = "fmeasure", stemmer: bool = False
) -> dict[str, float]:
    """ROUGE-2 and ROUGE-L, each against the reference that fits best.

    Raises:
        ValueError: If there is no reference.
    """
    scores = [rouge(text, reference, part, stemmer) for reference in references]
    return {kind: max(s[kind] for s in scores) for kind in KINDS}


def com_rouge(text: str, answers: Sequence[str], part: Part = "recall", stemmer: bool = False) -> dict[str, float]:
    """The coverage of the answers to a question's sub-aspects by a text, weighted by their length (eq. 11).

    The weight of a sub-answer is its share of the words of all. The paper does not say which part of
    ROUGE it means. Here it is recall, as in its authors' code: the F-measure of a text that covers all
    sub-answers would fall with their number.

    Raises:
        ValueError: If the sub-answers have no word.

    Example:
        >>> com_rouge("leaves turn red", ["leaves turn red", "the days grow shorter then too"])
        {'rouge2': 0.3333333333333333, 'rougeL': 0.3333333333333333}
    """
    lengths = [len(answer.split()) for answer in answers]
    if not sum(lengths):
        raise ValueError("no sub-answer has a word")
    scores = [rouge(text, answer, part, stemmer) for answer in answers]
    return {
        kind: sum(length * s[kind] for length, s in zip(lengths, scores, strict=True)) / sum(lengths) for kind in KINDS
    }


@cache
def rouge_scorer(kinds: tuple[str, ...], stemmer: bool = False) -> Any:
    """The `RougeScorer` of some kinds, for texts of all scripts."""
    with importing("rouge_score"):
        from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(kinds), tokenizer=_Tokenizer(stemmer))


class _Tokenizer:
    """A tokenizer like rouge-score's own, for texts of all scripts."""

    def __init__(self, stemmer: bool) -> None:
        with importing("nltk"):
            from nltk.stem.porter import PorterStemmer

        self._stemmer = PorterStemmer() if stemmer else None

    def tokenize(self, text: str) -> list[str]:
        words = words_of(text)
        if self._stemmer is None:
            return words
        return [self._stemmer.stem(word) if len(word) > 3 else word for word in words]


@dataclass(eq=False, repr=False)
class _Rouge(Metric):
    """The base of both metrics: the score is the mean of ROUGE-2 and ROUGE-L; for `stemmer` see `rouge`."""

    measures = ("rouge2", "rougeL")

    stemmer: bool = False

    def _scored(self, values: dict[str, float], feedback: str) -> Scored:
        return Scored(fmean(values.values()), feedback, values)


@metric
class Rouge(_Rouge):
    """F-measures of ROUGE against the gold answers, or else the best references. Measures: `rouge2`, `rougeL`."""

    name: ClassVar[str] = "rouge"
    needs = gold_texts

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare an answer with the text that fits best."""
        texts = gold_texts(example)
        values = best_rouge(prediction.answer, texts, stemmer=self.stemmer)
        return self._scored(values, f"A good answer: {texts[0]}")


@metric
class ComRouge(_Rouge):
    """Coverage of the example's `sub_answers`. Measures: `rouge2`, `rougeL`."""

    name: ClassVar[str] = "com-rouge"
    needs = sub_answers

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare with each sub-answer; the feedback names the least covered one."""
        answers = sub_answers(example)
        values = com_rouge(prediction.answer, answers, stemmer=self.stemmer)
        least = min(answers, key=lambda a: rouge(prediction.answer, a, "recall", self.stemmer)["rougeL"])
        return self._scored(values, f"Least covered: {least}")
