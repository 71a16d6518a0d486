from __future__ import annotations

from pathlib import Path

import dspy
import numpy as np
import pytest

from typedrag.core.errors import NotMeasurable, TypedRAGError
from typedrag.lms import models
from typedrag.metrics import build_metric
from typedrag.metrics.similarity import BERTScore, bertscore


@pytest.fixture(scope="module")
def minilm() -> Path:
    """A small model that can be had offline, as a folder."""
    return models.fetch("all-minilm-l6-v2")


def test_alike_texts_score_higher(minilm: Path) -> None:
    reference = ["In autumn leaves turn red and yellow."]
    same = bertscore(reference[0], reference, str(minilm))
    near = bertscore("Foliage becomes red or yellow in the fall.", reference, str(minilm))
    far = bertscore("The bank raised its interest rates twice.", reference, str(minilm))
    assert same == pytest.approx({"precision": 1, "recall": 1, "f1": 1}, abs=1e-4)
    assert 1 > near["f1"] > far["f1"] + 0.1


def test_it_is_greedy_matching_of_tokens(minilm: Path) -> None:
    """Against the definition of Zhang et al. (2020), computed with the model itself."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(minilm), AutoModel.from_pretrained(minilm).eval()

    def embed(text: str) -> np.ndarray:
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].numpy()
        return states / np.linalg.norm(states, axis=1, keepdims=True)

    text, reference = "leaves turn red", "in autumn the leaves of trees are red"
    cosines = embed(text) @ embed(reference).T
    # bert-score lets tokens match the marks of begin and end, which do not count themselves
    precision, recall = cosines.max(axis=1)[1:-1].mean(), cosines.max(axis=0)[1:-1].mean()
    expected = {"precision": precision, "recall": recall, "f1": 2 * precision * recall / (precision + recall)}
    assert bertscore(text, [reference], str(minilm)) == pytest.approx(expected, abs=1e-4)


def test_the_layer_matters(minilm: Path) -> None:
    texts = "leaves turn red", ["days grow shorter"]
    assert bertscore(*texts, str(minilm), layer=2)["f1"] != pytest.approx(
        bertscore(*texts, str(minilm))["f1"], abs=0.01
    )


def test_the_metric_takes_the_best_of_the_gold_answers(minilm: Path) -> None:
    example = dspy.Example(answers=("The bank raised its rates.", "Leaves turn red."))
    scored = build_metric("bertscore", model="all-minilm-l6-v2")(example, dspy.Prediction(answer="Leaves turn red."))
    assert scored.score == pytest.approx(1, abs=1e-4) and tuple(scored.measures) == BERTScore.measures


def test_blank_texts_and_long_ones(minilm: Path) -> None:
    assert bertscore(" ", ["a"], str(minilm))["f1"] == bertscore("a", [" "], str(minilm))["f1"] == 0
    assert bertscore("leaves turn red " * 400, ["leaves turn red"], str(minilm))["f1"] > 0.5


def test_nothing_is_measured_without_gold() -> None:
    with pytest.raises(NotMeasurable):
        build_metric("bertscore")(dspy.Example(question="q?"), dspy.Prediction(answer="a"))


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypedRAGError, match="nowhere"):
        bertscore("a", ["b"], str(tmp_path / "nowhere"))
