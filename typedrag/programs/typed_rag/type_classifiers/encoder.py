"""Embeddings of questions, by the small encoder that `typedrag models` fetches."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from typedrag.errors import LMUnavailable
from typedrag.lms.models import model_named
from typedrag.retrieval.local_models import loading

ENCODER = "all-minilm-l6-v2"
_MOST_TOKENS = 256
_BATCH = 32

_encoding = threading.Lock()  # the tokenizers of transformers cannot be used by two threads at once


def embed(questions: Sequence[str]) -> NDArray[np.float32]:
    """The embeddings of questions by all layers of the encoder: means over tokens, each of length 1.

    The last layer shows what a question is about, earlier ones how it asks: on NF-CATS train without
    not-a-question, a classifier over all layers is right on 0.90, one over the last alone, which is the
    sentence embedding, on 0.82 (cross-validated).

    Returns:
        [questions, layers * dimensions]

    Raises:
        LMUnavailable: If the model is not on this machine or cannot be loaded.
    """
    with _encoding:
        encoder = _encoder()
        batches = (questions[i : i + _BATCH] for i in range(0, len(questions), _BATCH))
        return np.concatenate([encoder.means(batch) for batch in batches])


class _Encoder(NamedTuple):
    tokenizer: Any
    network: Any

    def means(self, questions: Sequence[str]) -> NDArray[np.float32]:
        import torch
        from torch.nn.functional import normalize

        tokens = self.tokenizer(
            list(questions), return_tensors="pt", padding=True, truncation=True, max_length=_MOST_TOKENS
        )
        mask = tokens["attention_mask"][:, :, None]
        with torch.inference_mode():
            layers = self.network(**tokens, output_hidden_states=True).hidden_states
        means = [normalize((layer * mask).sum(1), dim=-1) for layer in layers]
        return torch.cat(means, dim=-1).numpy()


@cache
def _encoder() -> _Encoder:
    place = model_named(ENCODER).fetched(LMUnavailable)
    mend = f"Delete {place}, and fetch it again: typedrag models fetch {ENCODER}"
    with loading(f"the model '{ENCODER}'", mend, LMUnavailable):
        from transformers import AutoModel, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
        return _Encoder(tokenizer, AutoModel.from_pretrained(place, trust_remote_code=False).eval())
