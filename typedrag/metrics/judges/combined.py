"""The quality of an answer by labelled references, without an LM.

A logistic regression combines what an answer shares with good references, with bad ones and with none;
`scripts/train_combined_judge.py` trains it on labels and fabrications.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean

from typedrag.core.errors import NotMeasurable
from typedrag.core.records import Reference
from typedrag.retrieval.local_models import LogisticModel
from typedrag.retrieval.rerankers import cosines
from typedrag.text.words import content_words, split_words

WEIGHTS = Path(__file__).with_name("combined.json")
"""The model that is shipped."""

_GOOD = 0.5
"""The least worth of a good reference."""
_NEARNESS = 0.1
"""A reference whose cosine is lower by this than another's has 1/e of its weight."""
_UNSEEN = 0.2
"""Added to each count of a word, so that no odds are infinite."""

Words = frozenset[str]


def quality(question: str, answer: str, references: Sequence[Reference]) -> float:
    return LogisticModel.load(WEIGHTS).probability(features(question, answer, references))


def features(question: str, answer: str, references: Sequence[Reference]) -> dict[str, float]:
    """The features of an answer beside references: `cosine` is MiniLM's, words are content words. A reference's worth
    is its label's place between the worst, 0, and the best, 1. Words of the question count for `topic` only."""
    references = [r for r in references if r.text.strip()]
    worth_of = worths(references)
    good, bad = ([i for i, worth in enumerate(worth_of) if (worth >= _GOOD) is side] for side in (True, False))
    texts = tuple(r.text for r in references)
    near = cosines(answer, texts)
    nearest = max(near[i] for i in good)
    to_good = _nearness(texts, tuple(good))
    say = [math.exp(cosine / _NEARNESS) for cosine in near]

    topic = content_words(question)
    contents, named = ([words(text) - topic for text in texts] for words in (content_words, names))
    answered = content_words(answer)
    words, own = answered - topic, names(answer) - topic
    good_words: Words = frozenset().union(*(contents[i] for i in good))
    all_words: Words = frozenset().union(*contents)
    usual = fmean(len(split_words(texts[i])) for i in good)
    return {
        "cosine with the question": cosines(question, [answer])[0],
        "cosine with the nearest good one": nearest,
        "cosine with the nearest bad one": max(near[i] for i in bad),
        "cosine with good ones": fmean(near[i] for i in good),
        "cosine with bad ones": fmean(near[i] for i in bad),
        "nearer than good ones to each other": nearest - _mean(to_good[i] for i in good),
        "nearer than others to good ones": fmean(other < nearest for other in to_good if not math.isnan(other)),
        "worth of those it resembles": sum(map(math.prod, zip(say, worth_of, strict=True))) / sum(say),
        "worth of all": fmean(worth_of),
        "words recalled": _recalled(contents, worth_of, words),
        "words of a good one recalled": max(
            (len(contents[i] & words) / len(contents[i]) for i in good if contents[i]), default=math.nan
        ),
        "names recalled": _recalled(named, worth_of, words),
        "words of good ones": _mean(word in good_words for word in words),
        "words of none": 1 - _mean(word in all_words for word in words),
        "odds of its words": _mean_odds(contents, worth_of, words),
        "names of good ones": _mean(name in good_words for name in own),
        "names of none": 1 - _mean(name in all_words for name in own),
        "topic": _mean(word in answered for word in topic),
        "length": math.log1p(len(split_words(answer))),
        "length beside good ones": math.log((len(split_words(answer)) + 1) / (usual + 1)),
    }


def names(text: str) -> Words:
    """The words of a text that have a capital or begin with a digit, stemmed."""
    return content_words(" ".join(word for word in text.split() if any(c.isupper() or c.isdigit() for c in word)))


def worths(references: Sequence[Reference]) -> list[float]:
    labels = [r.label for r in references]
    if len(set(labels)) < 2:
        raise NotMeasurable("references of one label do not tell good answers from bad ones")
    worst, best = min(labels), max(labels)
    return [(label - worst) / (best - worst) for label in labels]


@lru_cache(maxsize=1024)
def _nearness(texts: tuple[str, ...], good: tuple[int, ...]) -> list[float]:
    """The highest cosine of each text with another good one; NaN if there is no other."""
    cosine = {i: cosines(texts[i], texts) for i in good}
    return [max((cosine[j][i] for j in good if j != i), default=math.nan) for i in range(len(texts))]


def _recalled(contents: Sequence[Words], worths: Sequence[float], words: Words) -> float:
    """The share of the references' words that an answer has, with references weighted by their worth."""
    counts = _counts(contents, worths)
    total = sum(counts.values())
    return sum(counts[word] for word in words) / total if total else math.nan


def _mean_odds(contents: Sequence[Words], worths: Sequence[float], words: Words) -> float:
    """The mean log odds of an answer's words to be in good references rather than in bad ones."""
    in_good, in_bad = _counts(contents, worths), _counts(contents, [1 - worth for worth in worths])
    good, bad = sum(worths), len(worths) - sum(worths)
    return _mean(
        math.log((in_good[word] + _UNSEEN) / (good + 2 * _UNSEEN))
        - math.log((in_bad[word] + _UNSEEN) / (bad + 2 * _UNSEEN))
        for word in words
    )


def _counts(contents: Sequence[Words], weights: Sequence[float]) -> dict[str, float]:
    counts: dict[str, float] = defaultdict(float)
    for words, weight in zip(contents, weights, strict=True):
        for word in words:
            counts[word] += weight
    return counts


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan
