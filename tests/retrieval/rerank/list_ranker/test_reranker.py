"""The list ranker as a reranker, and as a folder."""

import json

import pytest
import torch

from tests.retrieval.rerank.list_ranker.tiny import KINDS, PASSAGES, POOLED, WORDS, save_start, tiny_ranker
from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.retrieval import AspectReranker, open_reranker
from typedrag.retrieval.list_network import Candidates
from typedrag.retrieval.list_ranker import load_list_ranker, start_list_ranker
from typedrag.retrieval.list_ranker_settings import ListRankerSettings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("ranker")
    tiny_ranker(home / "start", "encoder").save(home / "ranker")
    return home / "ranker"


@pytest.fixture(scope="module")
def reranker(folder):
    return open_reranker(f"list:{folder}")


def ids(passages) -> list[str]:
    return [p.id for p in passages]


def test_the_result_is_a_permutation_s_prefix_with_scores_by_place(reranker):
    full = reranker.rerank("about bread", PASSAGES, 99)
    assert sorted(ids(full)) == sorted(ids(PASSAGES)) and ids(full) != ids(PASSAGES)
    assert [p.score for p in full] == [1 / place for place in range(1, 13)]
    held = {p.id: p.text for p in PASSAGES}
    assert all(held[p.id] == p.text for p in full)
    for k in (0, 1, 5, 11):
        assert reranker.rerank("about bread", PASSAGES, k) == full[:k]
    assert reranker.rerank("about bread", [], 5) == []


def test_equal_passages_keep_the_incoming_order(reranker):
    alike = [Passage(name, "bread dough", score=score) for name, score in [("z", 1.0), ("a", 5.0), ("m", 3.0)]]
    assert ids(reranker.rerank("oven", alike, 3)) == ["z", "a", "m"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_ranks_as_before_and_holds_no_pickle(kind, tmp_path):
    ranker = tiny_ranker(tmp_path / "start", kind)
    ranker.trained = {"start": "tiny"}
    ranker.save(tmp_path / "ranker")
    names = {file.name for file in (tmp_path / "ranker").iterdir()}
    assert {"ranker.json", "config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not any(name.endswith((".bin", ".pt", ".pkl")) for name in names)
    loaded = load_list_ranker(tmp_path / "ranker")
    assert loaded.settings == ranker.settings and loaded.trained == {"start": "tiny"}
    before, after = ranker.model.state_dict(), loaded.model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    candidates = Candidates("about bread", [p.text for p in PASSAGES], [("oven",)] * 12)
    assert loaded.write(candidates, 12) == ranker.write(candidates, 12)
    ranker.save(tmp_path / "ranker")  # in the place of the one that is there


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_in_half_precision_is_read_in_full(kind, tmp_path):
    from transformers import AutoModel

    start = save_start(tmp_path / "start", kind)
    AutoModel.from_pretrained(start).to(torch.bfloat16).save_pretrained(start)
    ranker = start_list_ranker(start, ListRankerSettings(pooling=POOLED[kind]))
    ranker.save(tmp_path / "ranker")
    for one in (ranker, load_list_ranker(tmp_path / "ranker")):
        assert {weights.dtype for weights in one.model.state_dict().values() if weights.is_floating_point()} == {
            torch.float32
        }
        assert len(one.write(Candidates("about bread", [p.text for p in PASSAGES]), 3)) == 3


def test_sequences_longer_than_the_start_can_read_are_refused(tmp_path):
    with pytest.raises(InputError, match="max_tokens is 600; the start reads 512 at most"):
        start_list_ranker(save_start(tmp_path, "encoder"), ListRankerSettings(max_tokens=600))


def test_an_encoder_that_cannot_keep_passages_from_the_question_reads_docid_tokens(tmp_path):
    start = save_start(tmp_path / "start", "deberta")
    with pytest.raises(InputError, match=r"start '.*' cannot read pools with pooling=passage.*--ranker pooling=docid"):
        start_list_ranker(start, ListRankerSettings(pooling="passage"))
    ranker = start_list_ranker(start)
    assert ranker.settings.pooling == "docid"
    candidates = Candidates("about bread", [p.text for p in PASSAGES])
    assert sorted(ranker.write(candidates, 12)) == list(range(12))


def test_an_encoder_that_minds_no_mask_is_found_out(tmp_path, monkeypatch):
    start = save_start(tmp_path, "encoder")
    module = type(start_list_ranker(start).model.encoder)
    forward = module.forward
    monkeypatch.setattr(module, "forward", lambda self, attention_mask, **given: forward(self, **given))
    with pytest.raises(InputError, match="its passages see the question"):
        start_list_ranker(start, ListRankerSettings(pooling="passage"))


def test_what_is_no_ranker_is_a_line(folder, tmp_path):
    with pytest.raises(RetrievalError, match="holds no list ranker"):
        open_reranker(f"list:{tmp_path}")
    with pytest.raises(InputError, match="is no reranker"):
        open_reranker("list:")
    broken = tmp_path / "broken"
    broken.mkdir()
    values = json.loads((folder / "ranker.json").read_text("utf-8"))
    values["settings"]["format"] = 2
    (broken / "ranker.json").write_text(json.dumps(values), "utf-8")
    with pytest.raises(RetrievalError, match="format"):
        open_reranker(f"list:{broken}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine", "utf-8")
    with pytest.raises(InputError, match="something else"):
        load_list_ranker(folder).save(tmp_path / "other")
    with pytest.raises(InputError, match="learn words"):
        start_list_ranker("scratch")


def test_question_and_sub_aspects_decide_the_order(reranker):
    assert isinstance(reranker, AspectReranker)
    orders = {tuple(ids(reranker.rerank(word, PASSAGES, 12))) for word in WORDS[:6]}
    assert len(orders) > 1
    aspects = {p.id: [WORDS[(n * 5) % 12]] for n, p in enumerate(PASSAGES)}
    assert ids(reranker.rerank_by_aspects("about bread", PASSAGES, 12, aspects)) != ids(
        reranker.rerank("about bread", PASSAGES, 12)
    )
