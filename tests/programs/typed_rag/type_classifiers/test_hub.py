from pathlib import Path

import pytest

from tests.retrieval.berts import save_tokenizer
from typedrag.core.errors import InputError, LMUnavailable
from typedrag.core.question_types import QuestionType
from typedrag.programs import Options
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier

WORDS = "why do leaves fall how i paint a wall ?".split()
TYPES = [t.value.upper().replace("-", "_") for t in reversed(QuestionType)]


def settings(folder: Path, labels: list[str]) -> dict:
    return {
        "vocab_size": save_tokenizer(folder, WORDS),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 20,
        "initializer_range": 0.4,
        "id2label": dict(enumerate(labels)),
    }


def save_bert(folder: Path, labels: list[str] = TYPES, *, head: bool = True) -> str:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    torch.manual_seed(7)
    made = BertForSequenceClassification if head else BertModel
    made(BertConfig(**settings(folder, labels))).save_pretrained(folder)
    return str(folder)


def classifier(name: str):
    return build_type_classifier(Options(type_classifier=f"hub:{name}"))


def test_probabilities_are_those_of_the_model(tmp_path):
    from transformers import pipeline

    folder = save_bert(tmp_path)
    [expected] = pipeline("text-classification", model=folder, top_k=None)("why do leaves fall")
    classify = classifier(folder)
    probabilities = classify.probabilities("why do leaves fall")
    for said in expected:
        assert probabilities[QuestionType(said["label"].lower().replace("_", "-"))] == pytest.approx(said["score"])
    prediction = classify(question="why do leaves fall")
    assert prediction.question_type.value.upper().replace("-", "_") == expected[0]["label"]
    assert prediction.probability == pytest.approx(expected[0]["score"])


def test_a_long_question_is_cut_to_what_the_model_can_read(tmp_path):
    assert classifier(save_bert(tmp_path))(question="why " * 500).question_type in QuestionType


def test_the_layers_of_nf_cats_are_loaded(tmp_path):
    import torch
    from transformers import AutoTokenizer, RobertaConfig

    from typedrag.programs.typed_rag.nf_cats import NFCats

    torch.manual_seed(7)
    network = NFCats(RobertaConfig(**settings(tmp_path, TYPES), pad_token_id=0)).eval()
    network.save_pretrained(tmp_path)
    tokens = AutoTokenizer.from_pretrained(tmp_path)("how do i paint a wall?", return_tensors="pt")
    with torch.inference_mode():
        pooled = network.pooler(network.embedder(**tokens).last_hidden_state)
        for layer in network.feedforward.linear_layers:
            hidden = layer(pooled)
            pooled = hidden * torch.tanh(torch.nn.functional.softplus(hidden))  # as its authors write Mish
        expected = network.feedforward.classification_layer(pooled).softmax(-1)[0].tolist()
    probabilities = classifier(str(tmp_path)).probabilities("how do i paint a wall?")
    assert list(probabilities) == list(reversed(QuestionType))
    assert list(probabilities.values()) == pytest.approx(expected, rel=1e-4)


def test_what_is_no_classifier_of_question_types_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"labels are POSITIVE, NEGATIVE\. Labels must be among: evidence-based, comp"):
        classifier(save_bert(tmp_path / "labels", ["POSITIVE", "NEGATIVE"]))(question="why?")
    with pytest.raises(InputError, match="holds no trained classifier"):
        classifier(save_bert(tmp_path / "head", head=False))(question="why?")


def test_what_cannot_be_had_is_a_fault_of_the_system(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    classify = classifier("nobody/has-this")  # not loaded before it is asked
    with pytest.raises(LMUnavailable, match=r"'nobody/has-this' cannot be loaded: .*Check the name and the network"):
        classify(question="why?")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(LMUnavailable, match="cannot be loaded"):
        classifier(str(tmp_path))(question="why?")
