"""The make whose model reads question and passage together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache

from typedrag.records import Passage
from typedrag.retrieval.gate.gate import Probability, ProbabilityGate
from typedrag.retrieval.local_models import locate_model
from typedrag.retrieval.rerank.rerankers import CROSS_ENCODER, CrossEncoderReranker

_loading = threading.Lock()  # what is cached may be made twice at once


class CrossEncoderGate(ProbabilityGate):
    """Lets passages through that a cross-encoder finds relevant: the sigmoid of its score, as it was trained.

    The model is loaded at the first question, and gates of one name share it.

    Args:
        threshold: See `ProbabilityGate`.
        name: A model that `typedrag models` knows, a folder, or a name of the Hugging Face hub.
    """

    def __init__(self, threshold: float, name: str = "") -> None:
        super().__init__(threshold)
        self._name = name or CROSS_ENCODER

    def probabilities(self, query: str, passages: Sequence[Passage]) -> list[Probability]:
        """Of each passage; see `ProbabilityGate.probabilities`.

        Raises:
            RetrievalError: If the model is not on this machine or cannot be loaded.
        """
        with _loading:
            model = _model(locate_model(self._name))
        return [*model.probabilities(query, passages)]


@cache
def _model(place: str) -> CrossEncoderReranker:
    return CrossEncoderReranker(place)
