"""The nearness of texts in meaning, by a bi-encoder that all callers share."""

from __future__ import annotations

from collections.abc import Sequence

from typedrag.records import Passage
from typedrag.retrieval.rerank.rerankers import BI_ENCODER, shared_reranker


def cosines(text: str, others: Sequence[str], model: str = BI_ENCODER) -> list[float]:
    """The cosines between the embedding of a text and those of others, in their order; 0 where either text is blank.

    Args:
        text: MiniLM reads its first 256 tokens, about 200 words. A model with prompts embeds it as a query.
        others: The same length of them is read; a model with prompts embeds them as passages.
        model: A bi-encoder: one that `typedrag models` knows, a folder, or a name on the hub.

    Returns:
        Values from -1 to 1, seldom below 0.

    Raises:
        RetrievalError: If the model is not on this machine or cannot be loaded.
    """
    written = [Passage(str(n), other) for n, other in enumerate(others) if text.strip() and other.strip()]
    scores = [0.0] * len(others)
    if written:
        for scored in shared_reranker(f"bi-encoder:{model}").rerank(text, written, len(written)):
            scores[int(scored.id)] = scored.score
    return scores
