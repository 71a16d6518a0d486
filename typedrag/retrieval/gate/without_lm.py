"""The makes that need no LM: a logistic regression on how near question and passage are, and a cross-encoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from typedrag.lms.trail import record
from typedrag.records import Passage, Step
from typedrag.retrieval.cosines import cosines
from typedrag.retrieval.gate.gate import Gate, Probability
from typedrag.retrieval.logistic import LogisticModel
from typedrag.retrieval.rerank.rerankers import CROSS_ENCODER, shared_reranker
from typedrag.texts.language import is_english

WEIGHTS = Path(__file__).with_name("score.json")

_MOST_WORDS = 200
"""Of a passage: about as many as MiniLM reads."""


class Features(NamedTuple):
    """What the model looks at.

    What else is at hand says nothing beyond these of ANTIQUE's passages: the margin of the cosine over the other
    passages found, the share of the question's words that the passage has, its rank and its retrieval score (AUC on
    questions it was not trained on 0.90 with and without).

    Attributes:
        cosine: Between MiniLM's embeddings of question and passage.
        log_words: ln(1 + words of the passage). A passage of a few words answers nothing, and one of many that is as
            useful is less near, since it says other things as well.
    """

    cosine: float
    log_words: float


class ScoreGate(Gate):
    """Lets passages through by the model shipped in `score.json`.

    It is trained on ANTIQUE's labels of people by `python -m benchmarks.relevance_gate --train`, which prints how well
    it does on others. MiniLM, which it needs, is loaded at the first question, and reads English: for questions in
    other languages nothing is known.
    """

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """Of each passage; see `Gate.probabilities`.

        Raises:
            RetrievalError: If MiniLM is not on this machine or cannot be loaded.
        """
        if not is_english(query):
            record(Step("language", query, "the question is not in English, which is all that the gate reads"))
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
    """Lets passages through that a cross-encoder finds relevant: the sigmoid of its score, as it was trained.

    The model is loaded at the first question, and gates of one name share it.

    Args:
        name: A model that `typedrag models` knows, a folder, or a name of the Hugging Face hub.
    """

    def __init__(self, threshold: float, name: str = "") -> None:
        super().__init__(threshold)
        self._name = name or CROSS_ENCODER

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """Of each passage; see `Gate.probabilities`.

        Raises:
            RetrievalError: If the model is not on this machine or cannot be loaded.
        """
        return [*shared_reranker(f"cross-encoder:{self._name}").probabilities(query, passages)]
