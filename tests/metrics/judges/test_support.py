import json
from pathlib import Path

import pytest

from tests.scripted import scripted
from typedrag.core.errors import InputError, StepFailed, Unavailable
from typedrag.lms import models
from typedrag.lms.replies import use_reply_store
from typedrag.metrics.judges.support import EmbeddingSupport, LMSupport, NLISupport, open_support, particulars
from typedrag.signatures.judging import JudgeSupport, SupportVerdict

SUPPORTED, CONTRADICTED, NOT_STATED = SupportVerdict
BREAD = ["Yeast feeds on sugar in the dough and gives off carbon dioxide, which makes bread rise."]
TEXAS = ["Texas joined the Confederate States of America on March 2, 1861."]


@pytest.fixture(scope="module", autouse=True)
def _minilm() -> None:
    models.fetch("all-minilm-l6-v2")


@pytest.mark.parametrize(
    ("question", "sentence", "sources", "verdict"),
    [
        ("Why does bread rise?", "Bread rises because yeast gives off carbon dioxide.", BREAD, SUPPORTED),
        ("Why does bread rise?", "1. Yeast makes carbon dioxide, so the bread rises.", BREAD, SUPPORTED),
        ("Why does bread rise?", "The bank raised its interest rates.", BREAD, NOT_STATED),
        ("Why does bread rise?", "Yeast does not give off carbon dioxide in the dough.", [
            "Yeast gives off carbon dioxide in the dough."], CONTRADICTED),
        ("When did Texas join?", "Texas joined the Confederate States of America on March 2, 1861.", TEXAS, SUPPORTED),
        ("When did Texas join?", "Texas joined the Confederate States of America in April 1865.", TEXAS, CONTRADICTED),
        ("When did Texas join?", "Texas joined the Confederate States.", TEXAS, SUPPORTED),
        ("What is a group of larks called?", "A group of larks is called a flock.", [
            "A group of larks is called an exaltation."], NOT_STATED),
        ("What are larks called?", 'A group of larks is called a "flock".', [
            "A group of larks is called an exaltation."], CONTRADICTED),
        ("When did Texas join?", "In 1861", TEXAS, SUPPORTED),
        ("Why does bread rise?", "Carbon dioxide", BREAD, SUPPORTED),
        ("Why does bread rise?", "Warm air", BREAD, NOT_STATED),
        ("How many stages has sleep?", "Sleep has four stages.", ["Sleep is divided in 4 stages."], SUPPORTED),
        ("How many stages has sleep?", "Sleep has seven stages.", ["Sleep has four stages."], CONTRADICTED),
    ],
)  # fmt: skip
def test_embeddings_and_words_tell_support(question, sentence, sources, verdict) -> None:
    assert EmbeddingSupport().verdicts(question, [sentence], sources) == [verdict]


@pytest.mark.parametrize(
    ("sentence", "known", "expected"),
    [
        ("Leaves turn red.", "", set()),
        ("Aksel Sandemose wrote it.", "", {"aksel", "sandemose"}),
        ("It was Sandemose.", "sandemose", set()),
        ("It took 1,000 men 2.5 years.", "1000 men", {"25"}),
        ("It is called “larking”.", "", {"larking"}),
        ("It has twenty legs.", "20 legs", set()),
        ("One of them runs.", "", set()),
        ("Paris", "", set()),
        ("!!!", "", set()),
    ],
)
def test_particulars(sentence, known, expected) -> None:
    assert particulars(sentence, known) == expected


@pytest.mark.parametrize("spec", ["nli", "nli:", "words", "embedding:x", "lm:x", ""])
def test_a_make_that_there_is_not_is_refused(spec) -> None:
    with pytest.raises(InputError, match="support"):
        open_support(spec)


def _tiny_model(folder: Path, labels: dict[int, str], likeliest: int) -> NLISupport:
    """A cross-encoder of random weights that finds the same class likeliest, whatever it reads."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "yeast", "gas", "makes"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        max_position_embeddings=32, num_labels=len(labels), id2label=labels,
        label2id={label: place for place, label in labels.items()},
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.bias[likeliest] += 100
    model.save_pretrained(folder)
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), model_max_length=32).save_pretrained(folder)
    return NLISupport(str(folder))


def test_the_labels_of_an_nli_model_are_those_of_its_configuration(tmp_path) -> None:
    model = _tiny_model(tmp_path / "nli", {0: "Contradiction", 1: "ENTAILMENT", 2: "neutral"}, likeliest=1)
    sentences, sources = ["Yeast makes gas.", "Gas."], ["Yeast makes gas.", "No."]
    assert model.verdicts("Why?", sentences, sources) == [SUPPORTED] * 2 and model.verdicts("Why?", [], sources) == []
    labels = {0: "entailment", 1: "neutral", 2: "contradiction"}
    for likeliest, verdict in ((2, CONTRADICTED), (1, NOT_STATED)):
        other = _tiny_model(tmp_path / verdict.name, labels, likeliest)
        assert other.verdicts("Why?", sentences, sources) == [verdict] * 2


def test_what_is_no_nli_model_is_refused(tmp_path) -> None:
    ranker = _tiny_model(tmp_path / "ranker", {0: "relevant", 1: "other"}, likeliest=0)
    with pytest.raises(InputError, match="relevant, other"):
        ranker.verdicts("Why?", ["Yeast."], BREAD)
    with pytest.raises(Unavailable, match="nowhere"):
        NLISupport("/nowhere").verdicts("Why?", ["Yeast."], BREAD)


def test_an_lm_is_asked_once_for_all_sentences_and_never_again(tmp_path) -> None:
    reply = {"verdicts": {"q1": "supported", "q2": "not stated", "q3": "contradicted"}}
    sentences = ["Yeast makes gas.", "It is old.", "Gas makes yeast."]
    with use_reply_store(tmp_path / "replies"), scripted({JudgeSupport: reply}) as engine:
        told = LMSupport().verdicts("Why does bread rise?", sentences, BREAD)
        assert told == [SUPPORTED, NOT_STATED, CONTRADICTED]
        assert LMSupport().verdicts("Why does bread rise?", sentences, BREAD) == told
    (asked,) = engine.prompts
    assert json.dumps(BREAD[0]) in asked[1] and '"q3": "Gas makes yeast."' in asked[1]


@pytest.mark.parametrize("reply", ["nonsense", {"verdicts": {"q1": "true"}}, {"verdicts": {}}])
def test_verdicts_that_cannot_be_read_are_a_failure(reply) -> None:
    with scripted({JudgeSupport: reply}), pytest.raises(StepFailed, match="support"):
        LMSupport().verdicts("Why?", ["Yeast."], BREAD)


def test_each_sentence_has_its_verdict_and_any_source_will_do() -> None:
    sentences = ["The bank raised its rates.", "Texas joined the Confederate States in 1861.", "Yeast makes gas."]
    assert EmbeddingSupport().verdicts("?", sentences, [*BREAD, *TEXAS])[:2] == [NOT_STATED, SUPPORTED]
    assert EmbeddingSupport().verdicts("?", [], BREAD) == []
