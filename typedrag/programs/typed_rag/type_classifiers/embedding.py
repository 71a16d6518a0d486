"""A type classifier over MiniLM, which is fine-tuned; what is shipped are low-rank changes of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from typedrag.core.errors import LMUnavailable
from typedrag.core.question_types import QuestionType
from typedrag.lms.models import find_model
from typedrag.programs.typed_rag.type_classifiers.base import ProbabilityClassifier
from typedrag.programs.typed_rag.type_classifiers.linear import load_arrays, softmax
from typedrag.retrieval.local_models import loading, local_model

ENCODER = "all-minilm-l6-v2"
EMBEDDING_WEIGHTS = Path(__file__).with_name("embedding.npz")
"""Arrays: `types`, `temperature`, `head` [types, dimensions + 1, the last for the bias], and what is added to MiniLM's
weights: to a vector `NAME.change`, to a matrix the product of `NAME.up` [out, rank] and `NAME.down` [rank, in]."""
MOST_TOKENS = 128


class EmbeddingTypeClassifier(ProbabilityClassifier):
    """Names a question's type by MiniLM with the changes shipped in `embedding.npz`.

    It is trained like `LinearTypeClassifier`.
    """

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        """The probability of each type; see `ProbabilityClassifier.probabilities`."""
        with _load() as model:
            logits = np.append(mean_embedding(model.tokenizer, model.network, [question])[0].numpy(), 1) @ model.head.T
        return dict(zip(model.types, softmax(logits / model.temperature).tolist(), strict=True))


class _Loaded(NamedTuple):
    tokenizer: Any
    network: Any
    head: NDArray[np.float32]
    temperature: NDArray[np.float32]
    types: tuple[QuestionType, ...]


@local_model
def _load() -> _Loaded:
    tokenizer, network = load_encoder()
    import torch

    arrays = load_arrays(EMBEDDING_WEIGHTS)
    weights = network.state_dict()  # the network's own, changed in place
    for of, change in arrays.items():
        name, _, kind = of.rpartition(".")
        if kind == "change":
            weights[name] += torch.from_numpy(change)
        elif kind == "up":
            weights[name] += torch.from_numpy(change @ arrays[f"{name}.down"])
    types = tuple(QuestionType(t) for t in arrays["types"])
    return _Loaded(tokenizer, network.eval(), arrays["head"], arrays["temperature"], types)


def load_encoder() -> tuple[Any, Any]:
    """MiniLM's tokenizer and network, as published."""
    place = find_model(ENCODER).require(LMUnavailable)
    hint = f"Delete {place}, and fetch it again: typedrag models fetch {ENCODER}"
    with loading(f"the model '{ENCODER}'", hint, LMUnavailable):
        from transformers import AutoModel, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
        return tokenizer, AutoModel.from_pretrained(place, trust_remote_code=False)


def mean_embedding(tokenizer: Any, network: Any, questions: list[str]) -> Any:
    """The means of the questions' tokens in the last layer: a tensor [questions, dimensions]."""
    import torch

    tokens = tokenizer(questions, return_tensors="pt", padding=True, truncation=True, max_length=MOST_TOKENS)
    mask = tokens["attention_mask"][:, :, None]
    with torch.set_grad_enabled(network.training):
        return (network(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1)
