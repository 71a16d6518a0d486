from __future__ import annotations

import pytest
from pydantic import ValidationError

from typedrag.errors import InputError
from typedrag.programs import Options
from typedrag.programs.classifier_spec import FORMS, ClassifierSpec


@pytest.mark.parametrize(
    ("text", "asks_lm", "is_external"),
    [
        ("linear", False, False),
        ("embedding", False, False),
        ("oracle", False, False),
        ("hub:Lurunchik/nf-cats", False, True),
        ("lm", True, False),
    ],
)
def test_type_classifiers_are_known_by_name(text, asks_lm, is_external):
    spec = ClassifierSpec.parse(text)
    assert (spec.asks_lm, spec.is_external) == (asks_lm, is_external)
    assert Options(type_classifier=text).type_classifier == text


def test_an_argument_keeps_what_follows_the_colon():
    assert ClassifierSpec.parse("hub:a/b:c, d") == ("hub", "a/b:c, d")


@pytest.mark.parametrize("text", ["linea", "", "linear:x", "hub", "hub:", "cascade"])
def test_others_are_refused(text):
    with pytest.raises(InputError, match=f"'{text}' is no type classifier") as refused:
        ClassifierSpec.parse(text)
    assert FORMS in refused.value.mend
    with pytest.raises(ValidationError, match=f"'{text}' is no type classifier"):
        Options(type_classifier=text)


def test_options_list_the_names():
    with pytest.raises(InputError, match="option type_classifier cannot be 'linea'") as refused:
        Options().with_given({"type_classifier": "linea"})
    assert FORMS in str(refused.value)
