import numpy as np
import pytest

from tests.retrieval.encoders import WORDS, save_encoder
from typedrag.core.errors import RetrievalError
from typedrag.core.records import Passage
from typedrag.retrieval import Encoder


@pytest.fixture(scope="module")
def encoder(tiny_model):
    return Encoder(tiny_model)


def test_embeddings_have_length_one_and_stand_in_the_order_of_the_texts(encoder):
    made = encoder.encode_queries(WORDS)
    assert made.shape == (len(WORDS), 16) and made.dtype == np.float32
    assert np.linalg.norm(made, axis=1) == pytest.approx(1)
    assert made[3] == pytest.approx(encoder.encode_queries([WORDS[3]])[0], abs=1e-5)


def test_a_passage_is_its_title_and_its_text(encoder):
    made = encoder.encode_passages([Passage("1", "bread", "cat"), Passage("2", "bread"), Passage("3", "cat\nbread")])
    assert made[0] == pytest.approx(made[2], abs=1e-5)
    assert made[0] != pytest.approx(made[1], abs=1e-3)


def test_prompts_go_before_queries_and_passages(tiny_model, encoder):
    prompted = Encoder(tiny_model, query_prompt="query ", passage_prompt="passage ")
    assert prompted.encode_queries(["bread"]) == pytest.approx(encoder.encode_queries(["query bread"]), abs=1e-5)
    with_prompt = prompted.encode_passages([Passage("1", "bread")])
    assert with_prompt == pytest.approx(encoder.encode_passages([Passage("1", "passage bread")]), abs=1e-5)
    assert with_prompt != pytest.approx(encoder.encode_passages([Passage("1", "bread")]), abs=1e-3)


def test_e5_gets_its_prefixes_and_others_what_their_configuration_says(tmp_path, tiny_model):
    import shutil

    e5 = Encoder(str(shutil.copytree(tiny_model, tmp_path / "tiny-e5-v2")))
    assert (e5.query_prompt, e5.passage_prompt) == ("query: ", "passage: ")
    configured = Encoder(save_encoder(tmp_path / "own", prompts={"query": "moon ", "document": "sun "}))
    assert (configured.query_prompt, configured.passage_prompt) == ("moon ", "sun ")
    plain = Encoder(tiny_model)
    assert (plain.query_prompt, plain.passage_prompt) == ("", "")
    assert configured.encode_queries(["cat"]) == pytest.approx(plain.encode_queries(["moon cat"]), abs=1e-5)


def test_a_model_that_wants_inner_products_keeps_its_lengths(tmp_path):
    made = Encoder(save_encoder(tmp_path, dot=True)).encode_queries(WORDS)
    assert np.linalg.norm(made, axis=1) != pytest.approx(1, abs=0.01)


def test_a_model_that_cannot_be_loaded_is_a_line(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RetrievalError, match=r"embedding model '.*nothing' cannot be loaded") as refused:
        Encoder(str(tmp_path / "nothing"))
    assert "\n" not in str(refused.value)
    monkeypatch.setenv("TYPEDRAG_MODELS", str(tmp_path))
    with pytest.raises(RetrievalError, match="Fetch it: typedrag models fetch all-minilm-l6-v2"):
        Encoder("all-minilm-l6-v2")
