"""Type classifiers of the Hugging Face hub, by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from typedrag.core.errors import InputError, LMUnavailable
from typedrag.core.question_types import QuestionType
from typedrag.programs.typed_rag.type_classifiers.base import ProbabilityClassifier
from typedrag.retrieval.local_models import loading, local_model


class HubTypeClassifier(ProbabilityClassifier):
    """Names a question's type by a sequence classifier of the hub, such as `Lurunchik/nf-cats`.

    Its labels are names of question types, in upper or lower case. It is loaded at the first question.

    Args:
        name: The name on the hub, or a folder.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def probabilities(self, question: str) -> Mapping[QuestionType, float]:
        """The probability of each type."""
        with _load(self.name) as model:
            import torch

            tokens = model.tokenizer(question, return_tensors="pt", truncation=True, max_length=model.max_length)
            with torch.inference_mode():
                logits = model.network(**tokens).logits[0]
        return dict(zip(model.types, logits.softmax(-1).tolist(), strict=True))


class _Loaded(NamedTuple):
    network: Any
    tokenizer: Any
    max_length: int
    types: tuple[QuestionType, ...]


@local_model
def _load(name: str) -> _Loaded:
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", "5")  # else a hub out of reach is tried for minutes
    folder = Path(name).expanduser()
    place = str(folder) if folder.is_dir() else name
    hint = "Check the name and the network, give a folder, or use the type classifier linear"
    with loading(f"the type classifier '{name}'", hint, LMUnavailable):
        from transformers import AutoConfig, AutoTokenizer

        config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        types = _types(name, config.id2label)
        network, tokenized_by = _network(name, place)
        tokenized_by = place if folder.is_dir() else tokenized_by
        tokenizer = AutoTokenizer.from_pretrained(tokenized_by, trust_remote_code=False)
    # the positions that RoBERTa never uses, which others can spare
    longest = getattr(config, "max_position_embeddings", 512) - 2
    return _Loaded(network.eval(), tokenizer, min(tokenizer.model_max_length, longest), types)


def _types(name: str, labels: Mapping[int, str]) -> tuple[QuestionType, ...]:
    try:
        return tuple(QuestionType(labels[i]) for i in sorted(labels))
    except ValueError:
        raise InputError(
            f"'{name}' is no classifier of question types: its labels are {', '.join(labels.values())}",
            f"Labels must be among: {', '.join(QuestionType)}",
        ) from None


def _network(name: str, place: str) -> tuple[Any, str]:
    """The network, and the name of its tokenizer."""
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    from typedrag.programs.typed_rag.type_classifiers.nf_cats import TOKENIZER, NFCats

    architectures: list[tuple[Any, str]] = [(AutoModelForSequenceClassification, name), (NFCats, TOKENIZER)]
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it would list the weights that are missing
    try:
        for architecture, tokenized_by in architectures:
            network, info = architecture.from_pretrained(place, output_loading_info=True, trust_remote_code=False)
            if not info["missing_keys"]:  # otherwise they are random numbers
                return network, tokenized_by
    finally:
        logging.set_verbosity(verbosity)
    raise InputError(f"'{name}' holds no trained classifier", "Name a model for text classification")
