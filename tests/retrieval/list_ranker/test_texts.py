"""What the encoder reads (RichRAG, eq. 5)."""

from __future__ import annotations

import pytest

from tests.retrieval.list_ranker.tiny import WORDS
from typedrag.retrieval.list_ranker.folder import start_list_ranker
from typedrag.retrieval.list_ranker.settings import ListRankerSettings
from typedrag.retrieval.list_ranker.texts import Candidates, Reader


@pytest.fixture(scope="module")
def tokenizer():
    return start_list_ranker("scratch", texts=[" ".join(WORDS)]).tokenizer


def read(tokenizer, candidates, **settings):
    reader = Reader(tokenizer, ListRankerSettings(**settings))
    sequences = reader.read(candidates)
    return [tokenizer.decode(ids) for ids in sequences.ids], sequences


def test_a_candidate_is_docid_question_its_sub_aspects_and_the_passage(tokenizer):
    candidates = Candidates("about bread", ["dough", "salt water"], [("oven", "crust"), ()])
    texts, sequences = read(tokenizer, candidates)
    assert texts == [
        "[CLS] [D] about bread [Q] crust [E] oven [E] [SEP]",  # all of them
        "[CLS] [D] about bread [Q] oven [E] crust [E] [S] dough [SEP]",
        "[CLS] [D] about bread [Q] [S] salt water [SEP]",
    ]
    assert sequences.pooled == [(1, 2)] * 3


def test_pooled_over_the_passage_there_is_no_docid_token(tokenizer):
    texts, sequences = read(tokenizer, Candidates("about bread", ["dough", "salt water"]), pooling="passage")
    assert texts[0] == "[CLS] about bread [SEP]" and texts[2] == "[CLS] about bread [Q] [S] salt water [SEP]"
    pooled = [
        tokenizer.decode(ids[start:end]) for ids, (start, end) in zip(sequences.ids, sequences.pooled, strict=True)
    ]
    assert pooled == ["[CLS] about bread [SEP]", "dough [SEP]", "salt water [SEP]"]


@pytest.mark.parametrize("pooling", ["docid", "passage"])
def test_long_texts_are_cut_and_the_passage_keeps_half(tokenizer, pooling):
    long = " ".join(WORDS * 20)
    _, sequences = read(tokenizer, Candidates(long, [long, "cat"], [(long,), ()]), max_tokens=40, pooling=pooling)
    assert max(map(len, sequences.ids)) == 40
    assert all(0 <= start < end <= len(ids) for ids, (start, end) in zip(sequences.ids, sequences.pooled, strict=True))
    separator = tokenizer.convert_tokens_to_ids("[S]")
    assert 40 - sequences.ids[1].index(separator) >= 17


def test_what_a_passage_says_is_never_a_separator(tokenizer):
    _, sequences = read(tokenizer, Candidates("about [S] bread", ["cat [S] [D] dog [SEP]"]))
    special = [i for i in sequences.ids[1] if i in tokenizer.convert_tokens_to_ids(["[D]", "[S]", "[SEP]"])]
    assert tokenizer.convert_ids_to_tokens(special) == ["[D]", "[S]", "[SEP]"]


def test_a_text_without_a_known_word_is_still_read(tokenizer):
    _, sequences = read(tokenizer, Candidates("?", ["…", "!"]), pooling="passage")
    assert all(end > start for start, end in sequences.pooled)
