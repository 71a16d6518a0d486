from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.programs.sub_queries import content_words, prompt_of, sift
from typedrag.signatures import DecomposeInstruction, DecomposeReason, predictor

QUESTION = "Why does homemade bread turn out dense?"
PROMPT = DecomposeReason.instructions


@pytest.mark.parametrize(
    ("sub_query", "reason"),
    [
        ("https://bread.example/dense", "a URL"),
        ("www.bread.example", "a URL"),
        ("Why?", "no query"),
        ("???", "no query"),
        ("", "no query"),
        ("bread " * 60, "too long for a query"),
        ("Write 2 to 5 short questions for a search engine", "a fragment of the prompt"),
        ("sub_queries about bread", "a fragment of the prompt"),
        ("[[ ## bread ## ]]", "a fragment of the prompt"),
        ("How do fish breathe?", "off the topic"),
        ("Why is dense homemade bread turned out?", "repeats another"),
    ],
)
def test_what_is_dropped_and_why(sub_query, reason):
    sifted = sift(QUESTION, [sub_query, "Is old yeast why bread is dense?"], prompt=PROMPT, limit=5)
    assert sifted.kept == ["Is old yeast why bread is dense?"]
    assert sifted.dropped[0].endswith(f"({reason})")


def test_words_are_compared_by_their_stems():
    assert content_words("breads turning denser") & content_words("The bread turned") == {"bread", "turn"}


def test_a_topic_named_by_the_decomposer_counts_as_the_questions():
    kept = sift("Is he a good one?", ["Did the mayor help the town?"], prompt="", limit=5, about="the mayor").kept
    assert kept == ["Did the mayor help the town?"]


def test_a_question_without_content_words_keeps_what_is_a_query():
    assert sift("Why is it so?", ["Does ice float?"], prompt="", limit=5).kept == ["Does ice float?"]


def test_scripts_without_spaces_share_characters():
    kept = sift("なぜパンは膨らむのですか", ["パンの酵母の働きは何ですか"], prompt="", limit=5).kept
    assert kept == ["パンの酵母の働きは何ですか"]


def test_only_as_many_as_allowed_are_kept_in_order():
    sub_queries = [f"Is bread dense by cause {n}?" for n in "abcd"]
    sifted = sift(QUESTION, sub_queries, prompt="", limit=2)
    assert sifted.kept == sub_queries[:2]
    assert len(sifted.dropped) == 2


@given(st.lists(st.text(max_size=40), max_size=8), st.integers(1, 5))
def test_every_sub_query_is_either_kept_or_dropped(sub_queries, limit):
    sifted = sift(QUESTION, sub_queries, prompt=PROMPT, limit=limit)
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
    ("question", "copied"), [("How do I plan a garden?", True), ("How do I put up a wooden fence?", False)]
)
def test_what_another_question_was_split_into_is_a_piece_of_the_prompt(question, copied):
    decomposer = predictor(DecomposeInstruction)
    first = decomposer.demos[0].sub_queries.root[0]
    sifted = sift(question, [first], prompt=prompt_of(decomposer, question), limit=5)
    assert sifted.kept == ([] if copied else [first])
    assert sifted.dropped == ((f"{first} (a fragment of the prompt)",) if copied else ())
