from __future__ import annotations

import pytest
from pydantic import ValidationError

from typedrag.errors import InputError
from typedrag.programs import Options
from typedrag.programs.makes import FORMS, make_named


@pytest.mark.parametrize(
    ("text", "asks_lm"),
    [
        ("linear", False),
        ("embedding", False),
        ("linear+embedding", False),
        ("hub:Lurunchik/nf-cats", False),
        ("lm", True),
        ("cascade", True),
        ("cascade:linear,embedding", False),
        ("cascade:hub:a/b,lm", True),
    ],
)
def test_makes_are_known_by_name(text, asks_lm):
    assert make_named(text).asks_lm is asks_lm
    assert Options(type_classifier=text).type_classifier == text


@pytest.mark.parametrize(
    ("text", "brought"),
    [
        ("linear+embedding", "linear+embedding"),
        ("hub:a/b", "linear"),
        ("cascade", "cascade:linear,lm"),
        ("cascade:hub:a/b,lm", "cascade:linear,lm"),
    ],
)
def test_a_make_that_comes_with_typedrag_can_stand_for_any(text, brought):
    make = make_named(text)
    assert make.brought == brought and not make_named(brought).named_elsewhere
    assert make_named(brought).asks_lm is make.asks_lm


def test_members_and_arguments_keep_what_follows_the_colon():
    first, second = make_named("cascade:linear,hub:a/b:c, d").members
    assert (first.name, first.argument) == ("linear", "")
    assert (second.name, second.argument) == ("hub", "a/b:c, d")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("linea", "'linea' is no type classifier"),
        ("lm-neighbours", "'lm-neighbours' is no more"),
        ("cascade:linear,lm-calibrated:/a/b.json", "'lm-calibrated' is no more"),
        ("", "'' is no type classifier"),
        ("linear:x", "'linear:x' is no type classifier"),
        ("hub", "'hub' is no type classifier"),
        ("hub:", "'hub:' is no type classifier"),
        ("cascade:linear", "names one type classifier, not two"),
        ("cascade:linear,linea", "'linea' is no type classifier"),
        ("cascade:linear,cascade", "a cascade of a cascade"),
    ],
)
def test_others_are_refused(text, said):
    with pytest.raises(InputError, match=said.replace("(", r"\(")) as refused:
        make_named(text)
    assert "Write" in refused.value.mend or FORMS in refused.value.mend
    with pytest.raises(ValidationError, match=said):
        Options(type_classifier=text)


def test_options_list_the_names():
    with pytest.raises(InputError, match="option type_classifier cannot be 'linea'") as refused:
        Options().with_given({"type_classifier": "linea"})
    assert FORMS in str(refused.value)
