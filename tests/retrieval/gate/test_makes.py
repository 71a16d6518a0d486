from __future__ import annotations

import pytest
from pydantic import ValidationError

from typedrag.errors import InputError
from typedrag.programs import Options
from typedrag.retrieval.gate import build_gate, gate_named


@pytest.mark.parametrize(
    ("text", "elsewhere", "brought"),
    [
        ("none", False, "none"),
        ("score", False, "score"),
        ("cross-encoder", False, "cross-encoder"),
        ("cross-encoder:a/b", True, "score"),
        ("lm", False, "lm"),
        ("cascade", False, "cascade"),
        ("cascade:score", False, "cascade"),
        ("cascade:cross-encoder", False, "cascade"),
        ("cascade:cross-encoder:/a:b", True, "cascade"),
    ],
)
def test_makes_are_known_by_name(text, elsewhere, brought):
    make = gate_named(text)
    assert (make.named_elsewhere, make.brought) == (elsewhere, brought)
    assert Options(relevance=text).relevance == text


@pytest.mark.parametrize(
    "text",
    ["", "Score", "score:", "score:x", "lm:x", "none:", "cross-encoder:", "cascade:", "cascade:cross-encoder:"],
)
def test_what_has_none_of_the_forms_is_refused_with_them(text):
    with pytest.raises(InputError, match=r"is no gate\. Write one of: none, score, cross-encoder"):
        gate_named(text)
    with pytest.raises(ValidationError, match="is no gate"):
        Options(relevance=text)


@pytest.mark.parametrize("text", ["cascade:lm", "cascade:none", "cascade:cascade"])
def test_a_cascade_begins_with_a_make_that_asks_no_lm(text):
    with pytest.raises(InputError, match="A cascade begins with score or cross-encoder"):
        gate_named(text)


@pytest.mark.parametrize(
    ("spec", "calls"), [("score", 0), ("cross-encoder:nowhere", 0), ("lm", 1), ("cascade", 1), ("cascade:score", 1)]
)
def test_gates_are_built_without_loading_a_model(spec, calls):
    gate = build_gate(spec, 0.2, passage_words=100, retries=1)
    assert gate is not None and gate.lm_calls == calls
    assert gate.passing("Why?", []) == []


def test_none_is_no_gate():
    assert build_gate("none", 0.2, passage_words=100, retries=1) is None
