"""Rerankers made of a T5, against the model called by hand."""

import pytest
import torch
from transformers import AutoTokenizer, T5ForConditionalGeneration

from tests.retrieval.rerank.t5s import WORDS, save_t5
from typedrag.core.errors import InputError, RetrievalError
from typedrag.core.records import Passage
from typedrag.retrieval import check_reranker, open_reranker

PASSAGES = [Passage(f"p{n}", f"{word} {' '.join(WORDS[: n % 5])}") for n, word in enumerate(WORDS * 4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_t5(tmp_path_factory.mktemp("t5"))


def logits(folder: str, text: str) -> torch.Tensor:
    """The logits of the first token that the model writes for one text."""
    read = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    model = T5ForConditionalGeneration.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(**read, decoder_input_ids=torch.tensor([[0]])).logits[0, 0]


def test_monot5_ranks_by_the_probability_of_true(folder):
    ranked = open_reranker(f"monot5:{folder}").rerank("bread oven", PASSAGES, 5)
    assert len(ranked) == 5 and ranked[0].score > ranked[-1].score
    true, false = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(["▁true", "▁false"])
    for passage in ranked:  # though it was read in a batch
        by_hand = logits(folder, f"Query: bread oven Document: {passage.text} Relevant:")
        assert passage.score == pytest.approx(float(by_hand[[true, false]].softmax(-1)[0]), abs=1e-5)
    assert open_reranker(f"monot5:{folder}").rerank("bread", [], 5) == []


def test_rankt5_ranks_by_the_logit_of_its_token(folder):
    ranked = open_reranker(f"rankt5:{folder}").rerank("bread oven", PASSAGES, len(PASSAGES))
    token = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("<extra_id_10>")
    for passage in ranked[:3]:
        by_hand = logits(folder, f"Query: bread oven Document: {passage.text}")
        assert passage.score == pytest.approx(float(by_hand[token]), abs=1e-4)
    assert [p.score for p in ranked] == sorted((p.score for p in ranked), reverse=True)


def test_a_long_passage_is_cut_so_that_what_follows_it_stays(folder):
    reranker = open_reranker(f"monot5:{folder}")
    long = " ".join(WORDS * 200)
    [ids] = reranker._read("bread", [long], [1]).input_ids
    end = reranker._tokenizer("Relevant:").input_ids
    assert ids.tolist()[-len(end) :] == end and 500 <= len(ids) <= 512
    [ranked] = reranker.rerank("bread", [Passage("long", long)], 1)
    assert 0 <= ranked.score <= 1


def order_by_hand(folder: str, query: str, texts: list[str]) -> str:
    """What LiT5 writes: each text encoded by itself, without padding, and one decoder over all states."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), T5ForConditionalGeneration.from_pretrained(folder).eval()
    written = (f"Search Query: {query} Passage: [{n}] {text} Relevance Ranking: " for n, text in enumerate(texts, 1))
    with torch.inference_mode():
        states = torch.cat(
            [model.encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state for text in written], dim=1
        )
        ids = torch.tensor([[0]])
        for _ in range(len(texts)):
            following = model(encoder_outputs=(states,), decoder_input_ids=ids).logits[0, -1].argmax()
            ids = torch.cat([ids, following[None, None]], dim=1)
    return tokenizer.decode(ids[0], skip_special_tokens=True)


def test_lit5_orders_a_window_as_the_model_writes(tmp_path_factory):
    named = set()
    for seed in range(4):
        folder = save_t5(tmp_path_factory.mktemp("lit5"), seed)
        by_hand = [
            word for word in order_by_hand(folder, "bread", [p.text for p in PASSAGES[:9]]).split() if "[" in word
        ]
        first = next((int(word[1:-1]) for word in by_hand if int(word[1:-1]) <= 9), None)
        ranked = open_reranker(f"lit5:{folder}").rerank("bread", PASSAGES[:9], 9)
        assert {p.id for p in ranked} == {p.id for p in PASSAGES[:9]}
        assert ranked[0].id == PASSAGES[first - 1 if first else 0].id
        named.add(first)
    assert named - {None, 1}  # some of them change the order


def test_lit5_moves_its_window_from_the_last_passages_to_the_first(folder):
    reranker = open_reranker(f"lit5:{folder}")
    ranked = reranker.rerank("bread", PASSAGES, len(PASSAGES))
    assert sorted(p.id for p in ranked) == sorted(p.id for p in PASSAGES)
    held = list(PASSAGES)
    for start in (12, 2, 0):
        window = held[start : start + 20]
        held[start : start + 20] = [window[n] for n in reranker._order("bread", [p.text for p in window])]
    assert [p.id for p in ranked] == [p.id for p in held]
    assert [p.score for p in ranked[:3]] == [1, 1 / 2, 1 / 3]
    assert reranker.rerank("bread", PASSAGES[:1], 3)[0].id == "p0" and reranker.rerank("bread", [], 3) == []


def test_a_model_of_another_kind_is_refused(tmp_path):
    folder = save_t5(tmp_path, tokens=("▁yes",))
    with pytest.raises(RetrievalError, match=r"it has no tokens ▁true and ▁false"):
        open_reranker(f"monot5:{folder}")
    with pytest.raises(RetrievalError, match=r"it has no tokens <extra_id_10>"):
        open_reranker(f"rankt5:{folder}")
    for spec in ("monot5", "lit5:", "rankt5"):
        with pytest.raises(InputError, match=f"'{spec}' is no reranker. Write one of: none.*lit5:NAME"):
            check_reranker(spec)
