"""The makes of gates without an LM: a logistic regression on the nearness of question and passage, a cross-encoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from typedrag.lms.trace import add_step
from typedrag.records import Passage, Step
from typedrag.retrieval.cosines import cosines
from typedrag.retrieval.gate.gate import Gate, Probability
from typedrag.retrieval.logistic import LogisticModel
from typedrag.retrieval.rerank.rerankers import CROSS_ENCODER, shared_reranker
from typedrag.texts.language import is_english

WEIGHTS = Path(__file__).with_name("score.json")

_MOST_WORDS = 200
"""Words of a passage that count: about as many as MiniLM reads."""


class Features(NamedTuple):
    """The features that the model reads.

    Other features add nothing to these on ANTIQUE's passages: the margin of the cosine over the other passages,
    the share of the question's words in the passage, its rank, and its retrieval score (AUC on questions outside the
    training set 0.90 with and without them).

    Attributes:
        cosine: The cosine between MiniLM's embeddings of question and passage.
        log_words: ln(1 + words of the passage). A passage of a few words answers nothing. A useful long passage is less
            near than a useful short one, since it says other things as well.
    """

    cosine: float
    log_words: float


class ScoreGate(Gate):
    """Keeps passages by the model in `score.json`.

    `python -m benchmarks.relevance_gate --train` trains it on ANTIQUE's human labels, and prints how well it does on
    questions outside the training set. It needs MiniLM, which is loaded at the first question and reads English;
    on other languages it is untested.
    """

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """The model's probability for each passage; None for all if the question is not English.

        Raises:
            RetrievalError: If MiniLM is not on this machine or cannot be loaded.
        """
        if not is_english(query):
            add_step(Step("language", query, "the question is not in English, which is all that the gate reads"))
            return [None] * len(passages)
        model = LogisticModel.load(WEIGHTS)
        return [model.probability(features._asdict()) for features in features_of(query, passages)]


def features_of(query: str, passages: Sequence[Passage]) -> list[Features]:
    """The features of each passage, in their order.

    Raises:
        RetrievalError: If MiniLM is not on this machine or cannot be loaded.
    """
    near = cosines(query, [p.titled for p in passages])
    return [Features(c, math.log1p(min(len(p.text.split()), _MOST_WORDS))) for c, p in zip(near, passages, strict=True)]


class CrossEncoderGate(Gate):
    """Keeps passages that a cross-encoder finds relevant: the probability is the sigmoid of its score, as in training.

    The model is loaded at the first question and shared by gates with the same name.

    Args:
        name: A model that `typedrag models` knows, a folder, or a name on the Hugging Face hub.
    """

    def __init__(self, threshold: float, name: str = "") -> None:
        super().__init__(threshold)
        self._name = name or CROSS_ENCODER

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """The cross-encoder's probability for each passage; see `Gate.probabilities`.

        Raises:
            RetrievalError: If the model is not on this machine or cannot be loaded.
        """
        return [*shared_reranker(f"cross-encoder:{self._name}").probabilities(query, passages)]
