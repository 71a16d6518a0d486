import shutil

import pytest

from tests.retrieval.berts import WORDS, save_bert
from tests.retrieval.encoders import save_encoder
from typedrag.core.errors import RetrievalError
from typedrag.core.records import Passage
from typedrag.retrieval import Encoder, NoReranker, open_reranker

PASSAGES = [Passage(f"p{n}", f"{word} {WORDS[n - 3]} {word}", f"on {word}", 9.0 - n) for n, word in enumerate(WORDS)]


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    return open_reranker("cross-encoder:" + save_bert(tmp_path_factory.mktemp("cross") / "bert", labels=1))


@pytest.fixture(scope="module")
def bi_encoder(tmp_path_factory):
    return open_reranker(f"bi-encoder:{save_encoder(tmp_path_factory.mktemp('bi'))}")


@pytest.fixture(params=["cross_encoder", "bi_encoder"])
def reranker(request):
    return request.getfixturevalue(request.param)


def ids(passages: list[Passage]) -> list[str]:
    return [p.id for p in passages]


def test_none_keeps_order_and_scores():
    reranker = open_reranker("none")
    assert isinstance(reranker, NoReranker)
    assert reranker.rerank("bread", PASSAGES, 4) == PASSAGES[:4]
    assert reranker.rerank("bread", PASSAGES, 99) == PASSAGES
    assert reranker.rerank("bread", [], 4) == []


def test_the_result_is_a_permutation_s_prefix_by_falling_score(reranker):
    full = reranker.rerank("yeast and salt", PASSAGES, len(PASSAGES))
    assert sorted(ids(full)) == sorted(ids(PASSAGES))
    assert ids(full) != ids(PASSAGES)
    scores = [p.score for p in full]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) > 1
    held = {p.id: (p.title, p.text) for p in PASSAGES}
    assert all(held[p.id] == (p.title, p.text) for p in full)
    for k in (0, 1, 5, 99):
        assert reranker.rerank("yeast and salt", PASSAGES, k) == full[:k]


@pytest.mark.parametrize(
    ("name", "prompts"),
    [("tiny-e5-v2", None), ("own", {"query": "moon ", "document": "sun "})],
)
def test_the_bi_encoder_puts_the_prompts_before_texts_that_the_dense_index_does(name, prompts, tmp_path):
    folder = shutil.move(save_encoder(tmp_path / "made", prompts=prompts), tmp_path / name)
    encoder, reranker = Encoder(str(folder)), open_reranker(f"bi-encoder:{folder}")
    passages = [Passage("1", "bread"), Passage("2", "dough oven"), Passage("3", "cat", "dog")]
    for query in ("bread", "cat", "bread"):  # the first passage is a query, too
        cosines = encoder.encode_passages(passages) @ encoder.encode_queries([query])[0]
        found = {p.id: p.score for p in reranker.rerank(query, passages, 3)}
        assert [found[p.id] for p in passages] == pytest.approx(cosines.tolist(), abs=1e-5)


def test_ties_keep_the_incoming_order(reranker):
    alike = [Passage(name, "bread dough", score=score) for name, score in [("z", 1.0), ("a", 5.0), ("m", 3.0)]]
    assert ids(reranker.rerank("oven", alike, 3)) == ["z", "a", "m"]
    assert ids(reranker.rerank("oven", alike[::-1], 2)) == ["m", "a"]


@pytest.mark.parametrize("kind", ["bi-encoder", "cross-encoder"])
def test_a_model_that_cannot_be_loaded_is_a_line(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RetrievalError, match=r"reranker model '.*nothing' cannot be loaded") as refused:
        open_reranker(f"{kind}:{tmp_path / 'nothing'}")
    assert "\n" not in str(refused.value)
    assert "--reranker bi-encoder or none" in str(refused.value)


def test_a_classifier_of_several_labels_is_no_cross_encoder(tmp_path):
    with pytest.raises(RetrievalError, match="cannot be loaded: it gives 3 scores, not one"):
        open_reranker("cross-encoder:" + save_bert(tmp_path / "nli", labels=3))
