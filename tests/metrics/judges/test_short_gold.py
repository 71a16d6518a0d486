from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.metrics.overlap import is_short, says


@pytest.mark.parametrize(
    ("text", "gold", "right"),
    [
        ("Aksel Sandemose created the term.", "Aksel Sandemose", True),
        ("Hebrew created the term.", "Aksel Sandemose", False),
        ("The disease killed 112 people.", "one hundred and twelve", True),
        ("It has twenty-one legs.", "21", True),
        ("It has 121 legs.", "21", False),
        ("Two million people came.", "2000000", True),
        ("On 2 March 1861 it did.", "March 2 , 1861", True),
        ("On the 2nd of March, 1861.", "March 2 , 1861", True),
        ("On 1861-03-02.", "March 2 , 1861", True),
        ("On March 3, 1861.", "March 2 , 1861", False),
        ("In March 1861.", "March 2 , 1861", False),
        ("In 1651, by Rachael.", "1651 && Rachael", True),
        ("In 1651, by Jane.", "1651 && Rachael", False),
        ("Yes, both are.", "yes", True),
        ("Both are American. So yes.", "yes", None),
        ("It depends. No: they differ.", "No", True),
        ("No, they differ.", "yes", False),
        ("No passage says so.", "no", None),
        ("No", "no", True),
        ("", "Paris", False),
        ("So it is.", "the", False),
    ],
)
def test_what_says_a_gold_answer(text, gold, right) -> None:
    assert says(text, [gold]) is right


def test_any_alias_will_do() -> None:
    assert says("It is the Tour Eiffel.", ["Eiffel Tower", "Tour Eiffel"])
    assert not says("In 1651 by Jane.", ["1651 && Rachael", "1652 && Jane"])


def test_each_entity_of_a_compound_answer_is_counted_by_itself() -> None:
    assert is_short("one two three four five six && seven eight nine ten eleven twelve")
    assert not is_short("one two three four five six seven eight nine")


@given(st.text(max_size=40), st.text(max_size=20))
def test_no_text_is_too_odd(text: str, gold: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert says(text, [gold]) in (True, False, None)
