"""BERTScore: the similarity of two texts, token by token, by a model's embeddings (RichRAG, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import dspy

from typedrag.errors import Unavailable
from typedrag.extras import importing
from typedrag.lms import models
from typedrag.metrics.gold import gold_texts
from typedrag.metrics.metric import Metric, Scored, metric
from typedrag.retrieval.local_models import loading, local_model

MODEL = "roberta-large"
"""The default of bert-score for English."""
_NO_LIMIT = 10**6
"""A tokenizer whose limit is above this does not know its limit."""


def bertscore(text: str, references: Sequence[str], model: str = MODEL, layer: int | None = None) -> dict[str, float]:
    """Precision, recall and F1 of BERTScore against the reference that fits best.

    Not rescaled by a baseline. A model reads only the first tokens, often 512. An empty text scores 0.

    Args:
        text: The text to measure.
        references: At least one.
        model: One that `typedrag models` knows, a folder, or a name of the Hugging Face hub.
        layer: The layer whose embeddings are compared; by default the one that bert-score recommends
            for the model, or the last.

    Raises:
        Unavailable: If the model cannot be loaded.
    """
    references = [r for r in references if r.strip()]
    if not references or not text.strip():
        return {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    with _scorer(model, layer) as scorer:
        precision, recall, f1 = scorer.score([text], [references])
    return {"precision": float(precision[0]), "recall": float(recall[0]), "f1": float(f1[0])}


@local_model
def _scorer(model: str, layer: int | None) -> Any:
    with importing("bert_score"), loading(f"the model '{model}' for BERTScore", error=Unavailable):
        from bert_score import BERTScorer
        from bert_score.utils import model2layers
        from transformers import AutoConfig

        place = str(models.fetch(model) if model in models.MODELS else Path(model).expanduser())
        config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        if layer is None:
            layer = model2layers.get(model, config.num_hidden_layers)
        scorer = BERTScorer(model_type=place, num_layers=layer)
        if scorer._tokenizer.model_max_length > _NO_LIMIT:  # bert-score passes it on, and it does not fit an int
            scorer._tokenizer.model_max_length = config.max_position_embeddings
        return scorer


@metric
class BERTScore(Metric):
    """BERTScore against the gold answers, or else the best references.

    The score is F1, or 0 if that is negative. Measures: `precision`, `recall`, `f1`.

    Its options are those of `bertscore`.
    """

    name: ClassVar[str] = "bertscore"
    measures = ("precision", "recall", "f1")
    needs = gold_texts

    model: str = MODEL
    layer: int | None = None

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Scored:
        """Compare an answer with the text that fits best."""
        texts = gold_texts(example)
        values = bertscore(prediction.answer, texts, self.model, self.layer)
        return Scored(min(max(values["f1"], 0.0), 1.0), f"A good answer: {texts[0]}", values)
