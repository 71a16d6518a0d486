import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.lms import models
from typedrag.programs.options import Options
from typedrag.programs.sub_queries import Prompt, content_words, copyable_prompt, filter_sub_queries, topic_similarity
from typedrag.retrieval.rerankers import NoReranker, open_reranker
from typedrag.signatures import predictor
from typedrag.signatures.typed_rag import DecomposeInstruction, DecomposeReason, FrameDebate

QUESTION = "Why does homemade bread turn out dense?"
PROMPT = Prompt(DecomposeReason.instructions)


@pytest.mark.parametrize(
    ("sub_query", "reason"),
    [
        ("https://bread.example/dense", "a URL"),
        ("www.bread.example", "a URL"),
        ("Why?", "no query"),
        ("???", "no query"),
        ("", "no query"),
        ("bread " * 60, "too long for a query"),
        ("Write 2 to 5 short questions for a search engine", "copied from the prompt"),
        ("sub_queries about bread", "copied from the prompt"),
        ("[[ ## bread ## ]]", "copied from the prompt"),
        ("How do fish breathe?", "off the topic"),
        ("why does homemade bread turn out dense", "repeats another"),
    ],
)
def test_what_is_dropped_and_why(sub_query, reason):
    others = ["Is old yeast why bread is dense?", "Is cold dough why bread is dense?"]
    sifted = filter_sub_queries(QUESTION, [sub_query, *others], prompt=PROMPT, limit=5)
    assert sifted.kept == others
    assert sifted.dropped[0].endswith(f"({reason})")


PARAPHRASES = ["How can I lose weight?", "What is the best way to lose weight?", "How do people lose weight?"]
DATABASES = ["What are relational databases?", "What are document stores?", "When is NoSQL used?"]


@pytest.mark.parametrize(
    ("question", "sub_queries"), [("How do I lose weight?", PARAPHRASES), ("SQL vs NoSQL", DATABASES)]
)
@pytest.mark.parametrize("near", [None, lambda _, texts: [0.24] * len(texts)], ids=["words", "meaning"])
def test_what_words_cannot_tell_is_kept(question, sub_queries, near):
    assert filter_sub_queries(question, sub_queries, prompt=Prompt(), limit=5, near=near).kept == sub_queries


def test_what_is_far_in_meaning_and_shares_no_word_is_off_the_topic():
    near = {"What are document stores?": 0.24, "How do fish breathe?": 0.01}
    sifted = filter_sub_queries(
        "SQL vs NoSQL", [*near, "Is SQL old?"], prompt=Prompt(), limit=5, near=lambda _, ts: [near[t] for t in ts]
    )
    assert sifted.kept == ["What are document stores?", "Is SQL old?"]
    assert sifted.dropped == ("How do fish breathe? (off the topic)",)


def test_as_published_nothing_is_sifted_but_what_is_above_the_limit():
    written = ["https://a.example", "How do fish breathe?", "How do fish breathe?", "", "Is bread dense?"]
    sifted = filter_sub_queries(QUESTION, written, prompt=PROMPT, limit=3, check=Options.as_published().sift)
    assert sifted.kept == written[:3]
    assert sifted.dropped == (" (no query)", "Is bread dense? (one more than the 3 allowed)")


def test_the_encoder_of_a_reranker_says_what_is_near():
    models.fetch("all-minilm-l6-v2")
    near = topic_similarity(NothingFound(), open_reranker("bi-encoder"))
    databases, fish = near("SQL vs NoSQL", ["relational databases", "How do fish breathe?"])
    assert databases > 0.4 > 0.1 > fish
    assert topic_similarity(NothingFound(), NoReranker()) is None


class NothingFound:
    """A retriever without an encoder."""

    def search(self, queries, k):
        return [[] for _ in queries]


def test_a_topic_named_by_the_decomposer_counts_as_the_questions():
    kept = filter_sub_queries(
        "Is he a good one?", ["Did the mayor help the town?"], prompt=Prompt(), limit=5, about="the mayor"
    ).kept
    assert kept == ["Did the mayor help the town?"]


def test_a_question_without_content_words_keeps_what_is_a_query():
    assert filter_sub_queries("Why is it so?", ["Does ice float?"], prompt=Prompt(), limit=5).kept == [
        "Does ice float?"
    ]


def test_scripts_without_spaces_share_characters():
    kept = filter_sub_queries("なぜパンは膨らむのですか", ["パンの酵母の働きは何ですか"], prompt=Prompt(), limit=5).kept
    assert kept == ["パンの酵母の働きは何ですか"]


@given(st.lists(st.text(max_size=40), max_size=8), st.integers(1, 5))
def test_every_sub_query_is_either_kept_or_dropped(sub_queries, limit):
    sifted = filter_sub_queries(QUESTION, sub_queries, prompt=PROMPT, limit=limit)
    assert len(sifted.kept) + len(sifted.dropped) == len(sub_queries)
    assert len(sifted.kept) <= limit


def test_threads_do_not_share_a_stemmer():
    words = [
        f"{stem}{ending}" for stem in ("bak", "knead", "proof", "ferment") for ending in ("ing", "ed", "s", "ation")
    ]
    alone = [content_words(word) for word in words]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(16) as pool:
            together = list(pool.map(content_words, words * 50))
    finally:
        sys.setswitchinterval(interval)
    assert together == alone * 50


@pytest.mark.parametrize(
    ("question", "sub_query", "copied"),
    [
        ("How do I plan a garden?", "How do I plan and measure a wooden fence?", True),
        ("How do I plan a garden?", "How do I keep a wooden fence around my garden dry?", True),
        ("How do I plan a garden?", "How do I plan and measure the beds of a garden?", False),
        ("How do I plan a garden?", "How do I set the fence of a garden?", False),
        ("How do I paint a fence?", "How do I protect a wooden fence that is painted?", True),
        ("How do I paint a wooden fence?", "How do I protect a wooden fence that is painted?", False),
        ("How do I put up a wooden fence?", "How do I plan and measure a wooden fence?", False),
    ],
)
def test_what_the_demonstration_is_about_is_copied_but_not_how_it_asks(question, sub_query, copied):
    sifted = filter_sub_queries(
        question, [sub_query], prompt=copyable_prompt(predictor(DecomposeInstruction), question), limit=5
    )
    assert sifted.kept == ([] if copied else [sub_query])
    assert sifted.dropped == ((f"{sub_query} (copied from the prompt)",) if copied else ())


def test_of_a_debate_s_demonstration_the_sides_are_not_its_topic():
    [topic] = copyable_prompt(predictor(FrameDebate), "Should pupils wear a uniform?").topics
    assert topic == {"wild", "anim", "zoo"}


def test_only_as_many_as_allowed_are_kept_in_order():
    sub_queries = [f"Is bread dense by cause {n}?" for n in "abcd"]
    sifted = filter_sub_queries(QUESTION, sub_queries, prompt=Prompt(), limit=2)
    assert sifted.kept == sub_queries[:2]
    assert len(sifted.dropped) == 2
