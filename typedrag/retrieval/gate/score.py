"""The make that needs no LM: a logistic regression on how near question and passage are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, FiniteFloat

from typedrag.files.text_files import write_text
from typedrag.lms.trail import record
from typedrag.records import Passage, Step
from typedrag.retrieval.cosines import shared_encoder
from typedrag.retrieval.gate.gate import Probability, ProbabilityGate
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


class ScoreWeights(BaseModel):
    """A logistic regression on `Features`.

    Example:
        >>> weights = ScoreWeights(intercept=-2.0, cosine=4.0, log_words=0.0)
        >>> weights.probability(Features(0.5, 3.0)), round(weights.probability(Features(1.0, 3.0)), 2)
        (0.5, 0.88)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    intercept: FiniteFloat
    cosine: FiniteFloat
    log_words: FiniteFloat

    def probability(self, features: Features) -> float:
        """That a passage with these features is of use."""
        log_odds = self.intercept + self.cosine * features.cosine + self.log_words * features.log_words
        return 1 / (1 + math.exp(-log_odds))

    @classmethod
    def load(cls, path: Path) -> ScoreWeights:
        """Read weights that `save` wrote."""
        return cls.model_validate_json(path.read_text("utf-8"))

    def save(self, path: Path) -> None:
        """Write the weights as JSON."""
        write_text(path, self.model_dump_json(indent=1) + "\n")


class ScoreGate(ProbabilityGate):
    """Lets passages through by the model shipped in `score.json`.

    It is trained on ANTIQUE's labels of people by `python -m benchmarks.relevance_gate --train`, which prints how well
    it does on others. MiniLM, which it needs, is loaded at the first question, and reads English: for questions in
    other languages nothing is known.
    """

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """Of each passage; see `ProbabilityGate.probabilities`.

        Raises:
            RetrievalError: If MiniLM is not on this machine or cannot be loaded.
        """
        if not is_english(query):
            record(Step("language", query, "the question is not in English, which is all that the gate reads"))
            return [None] * len(passages)
        weights = _weights()
        return [weights.probability(features) for features in features_of(query, passages)]


def features_of(query: str, passages: Sequence[Passage]) -> list[Features]:
    """The features of each passage, in their order.

    Raises:
        RetrievalError: If MiniLM is not on this machine or cannot be loaded.
    """
    cosines = {p.id: p.score for p in shared_encoder().rerank(query, passages, len(passages))}
    return [Features(cosines[p.id], math.log1p(min(len(p.text.split()), _MOST_WORDS))) for p in passages]


@cache
def _weights() -> ScoreWeights:
    return ScoreWeights.load(WEIGHTS)
