"""The grammar of specs, and what refuses one that has none of the forms."""

import pytest
from pydantic import ValidationError

from typedrag.core.errors import InputError
from typedrag.core.question_types import TYPE_CLASSIFIERS
from typedrag.programs import Options
from typedrag.programs.loading import external_options
from typedrag.retrieval import open_reranker
from typedrag.retrieval.relevance_filter import RELEVANCE_FILTERS
from typedrag.retrieval.rerankers import RERANKERS

VALID = [
    (TYPE_CLASSIFIERS, "linear", ("linear", "")),
    (TYPE_CLASSIFIERS, "hub:a/b:c, d", ("hub", "a/b:c, d")),
    (RELEVANCE_FILTERS, "none", ("none", "")),
    (RELEVANCE_FILTERS, "cross-encoder:a/b", ("cross-encoder", "a/b")),
    (RELEVANCE_FILTERS, "cascade", ("cascade", "")),
    (RELEVANCE_FILTERS, "cascade:cross-encoder", ("cascade:cross-encoder", "")),
    (RELEVANCE_FILTERS, "cascade:cross-encoder:/a:b", ("cascade:cross-encoder", "/a:b")),
    (RERANKERS, "cross-encoder", ("cross-encoder", "")),
    (RERANKERS, "list:folder", ("list", "folder")),
]
INVALID = {
    TYPE_CLASSIFIERS: ["linea", "", "linear:x", "hub", "hub:", "cascade"],
    RELEVANCE_FILTERS: [
        "", "Score", "score:", "score:x", "lm:x", "none:", "cross-encoder:", "cascade:", "cascade:cross-encoder:",
        "cascade:lm", "cascade:none", "cascade:cascade",
    ],
    RERANKERS: ["", "best", "None", "none:x", "crossencoder", "cross_encoder:x", ":x", "monot5", "lit5:"],
}  # fmt: skip


@pytest.mark.parametrize(("grammar", "text", "spec"), VALID)
def test_a_spec_is_a_kind_and_what_follows_its_colon(grammar, text, spec):
    assert grammar.parse(text) == spec


@pytest.mark.parametrize(("grammar", "text"), [(g, text) for g, texts in INVALID.items() for text in texts])
def test_what_has_none_of_the_forms_is_refused_with_them(grammar, text):
    with pytest.raises(InputError, match=f"'{text}' is no .*Write one of: ") as refused:
        grammar.parse(text)
    assert grammar.forms in str(refused.value)


def test_options_and_rerankers_refuse_them_too():
    with pytest.raises(ValidationError, match="'linea' is no type classifier"):
        Options(type_classifier="linea")
    with pytest.raises(InputError, match=r"option relevance cannot be 'best'.*Write one of: none, score"):
        Options().with_given({"relevance": "best"})
    with pytest.raises(InputError, match=r"is no reranker\. Write one of: none, bi-encoder\[:NAME\], cross-encoder"):
        open_reranker("best")


def test_an_option_with_an_argument_names_a_model_that_does_not_come_with_typedrag():
    ours = Options(type_classifier="embedding", relevance="cascade:score")
    assert external_options(ours) == []
    theirs = Options(type_classifier="hub:a/b", relevance="cascade:cross-encoder:some/model")
    assert [name for name, _ in external_options(theirs)] == ["type_classifier", "relevance"]
