"""How near texts are in meaning, by a bi-encoder that all who ask share."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache

from typedrag.records import Passage
from typedrag.retrieval.protocols import Reranker
from typedrag.retrieval.rerank.rerankers import BI_ENCODER, open_reranker

_loading = threading.Lock()


def cosines(text: str, others: Sequence[str], model: str = BI_ENCODER) -> list[float]:
    """The cosines between the embedding of a text and those of others, in their order; 0 where one of two is blank.

    Args:
        text: MiniLM reads its first 256 tokens, about 200 words. A model with prompts gets it as a query.
        others: Read as far; get the prompt of a passage.
        model: A bi-encoder: one that `typedrag models` knows, a folder, or a name of the hub.

    Returns:
        From -1 to 1, seldom below 0.

    Raises:
        RetrievalError: If the model is not on this machine or cannot be loaded.
    """
    written = [Passage(str(n), other) for n, other in enumerate(others) if text.strip() and other.strip()]
    scores = [0.0] * len(others)
    if written:
        for scored in shared_encoder(model).rerank(text, written, len(written)):
            scores[int(scored.id)] = scored.score
    return scores


def shared_encoder(model: str = BI_ENCODER) -> Reranker:
    """The bi-encoder of this name, loaded once in a process; its scores are cosines.

    Raises:
        RetrievalError: If the model is not on this machine or cannot be loaded.
    """
    with _loading:  # by one thread: the others wait for the same model
        return _encoder(model)


@cache
def _encoder(model: str) -> Reranker:
    return open_reranker(f"bi-encoder:{model}")
