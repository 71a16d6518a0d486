"""What the encoder reads (RichRAG, eq. 5)."""

import pytest

from tests.retrieval.rerank.list_ranker.tiny import WORDS
from typedrag.retrieval.list_network import Candidates, Reader
from typedrag.retrieval.list_ranker import start_list_ranker
from typedrag.retrieval.list_ranker_settings import ListRankerSettings


@pytest.fixture(scope="module")
def tokenizer():
    return start_list_ranker("scratch", texts=[" ".join(WORDS)]).tokenizer


def read(tokenizer, candidates, **settings):
    reader = Reader(tokenizer, ListRankerSettings(**{"pooling": "docid", **settings}))
    sequences = reader.read(candidates)
    return [tokenizer.decode(ids) for ids in sequences.ids], sequences


def test_a_candidate_is_docid_question_its_sub_aspects_and_the_passage(tokenizer):
    candidates = Candidates("about bread", ["dough", "salt water"], [("oven", "crust"), ()])
    texts, sequences = read(tokenizer, candidates)
    assert texts == [
        "[CLS] [D] crust [E] oven [E] [S] about bread [SEP]",  # the question, with all of them
        "[CLS] [D] about bread [Q] oven [E] crust [E] [S] dough [SEP]",
        "[CLS] [D] about bread [Q] [S] salt water [SEP]",
    ]
    assert sequences.pooled == [(1, 2)] * 3


def test_pooled_over_the_passage_it_comes_first_as_a_sentence_encoder_knows_it(tokenizer):
    candidates = Candidates("about bread", ["dough", "salt water"], [("oven", "crust"), ()])
    texts, sequences = read(tokenizer, candidates, pooling="passage")
    assert texts == [
        "[CLS] about bread [SEP] crust [E] oven [E]",
        "[CLS] dough [SEP] about bread [Q] oven [E] crust [E]",
        "[CLS] salt water [SEP] about bread [Q]",
    ]
    pooled = [
        tokenizer.decode(ids[start:end]) for ids, (start, end) in zip(sequences.ids, sequences.pooled, strict=True)
    ]
    assert pooled == ["[CLS] about bread [SEP]", "[CLS] dough [SEP]", "[CLS] salt water [SEP]"]


@pytest.mark.parametrize("pooling", ["docid", "passage"])
def test_long_texts_are_cut_and_the_passage_keeps_half(tokenizer, pooling):
    long = " ".join(WORDS * 20)
    _, sequences = read(tokenizer, Candidates(long, [long, "cat"], [(long,), ()]), max_tokens=40, pooling=pooling)
    assert 36 <= max(map(len, sequences.ids)) <= 40
    assert all(0 <= start < end <= len(ids) for ids, (start, end) in zip(sequences.ids, sequences.pooled, strict=True))
    passage = tokenizer(long, add_special_tokens=False)["input_ids"][:16]
    assert any(sequences.ids[1][n : n + 16] == passage for n in range(40))


def test_what_a_passage_says_is_never_a_separator(tokenizer):
    _, sequences = read(tokenizer, Candidates("about [S] bread", ["cat [S] [D] dog [SEP]"]))
    special = [i for i in sequences.ids[1] if i in tokenizer.convert_tokens_to_ids(["[D]", "[S]", "[SEP]"])]
    assert tokenizer.convert_ids_to_tokens(special) == ["[D]", "[S]", "[SEP]"]
