from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from typedrag.metrics.metric import listed, quoted, touched, untouched
from typedrag.signatures.roles import Role
from typedrag.text.words import beginning

QUESTION = "Why does bread rise?"


def test_what_others_say_in_other_forms_of_the_words_is_not_missing():
    texts = ["Yeasts make gases. Gluten traps the bubbles in dough."]
    assert untouched(texts, ["Gas is made by yeast."], QUESTION) == ["Gluten traps the bubbles in dough."]
    assert untouched(texts, ["Gas is made by yeast.", "The dough's gluten traps it."], QUESTION) == []


def test_no_two_texts_together_touch_a_sentence():
    assert untouched(["Gluten traps carbon dioxide."], ["Gluten is strong.", "Carbon is black."], QUESTION)


def test_the_question_s_own_words_are_no_news():
    assert untouched(["Bread rises and bread rises."], [], QUESTION) == []
    assert not touched("Why does bread rise?", ["Bread rises."], QUESTION)


def test_the_same_matter_is_named_once():
    texts = ["Gluten traps the gas bubbles.", "The bubbles of gas are trapped by gluten."]
    assert untouched(texts, [], QUESTION) == texts[:1]


def test_no_more_are_named_than_wanted():
    texts = ["Yeast eats sugar. Gluten traps bubbles. Ovens heat dough quickly."]
    assert untouched(texts, [], QUESTION, most=2) == ["Yeast eats sugar.", "Gluten traps bubbles."]


@given(st.text(max_size=200), st.integers(1, 10))
def test_quotes_keep_to_their_length_and_their_line(text: str, most: int):
    assert "\n" not in quoted(text, most)
    assert len(beginning(text, most).removesuffix(" …").split()) <= most


def test_a_list_says_how_much_it_leaves_out():
    assert listed(["a", "b", "c"], most=2) == "«a» «b» and 1 more"
    assert listed(["a", "b", "c"], most=None) == "«a» «b» «c»"


def test_writers_are_told_from_those_that_do_something_else():
    assert {role for role in Role if role.writes} == {Role.ANSWERER, Role.COMBINER, Role.TELLER}
