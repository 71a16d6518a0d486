"""Which options each program reads: another that is set is refused, and none is read that is not said."""

from __future__ import annotations

import pytest

from tests.programs.passages import Numbered
from tests.scripted import scripted
from typedrag import signatures as s
from typedrag.errors import InputError
from typedrag.experiments.loading import ProgramSource
from typedrag.programs import Options, build_program, program_class, program_names
from typedrag.question_types import QuestionType

QUESTION = "Why does homemade bread turn out dense and heavy?"


@pytest.mark.parametrize("name", program_names())
def test_a_program_reads_no_option_that_it_does_not_say(name, monkeypatch):
    options, read = Options(), set()
    look_up = Options.__getattribute__

    def reading(self, attribute):
        if self is options:  # not a copy in which the program has put values of its own
            read.add(attribute)
        return look_up(self, attribute)

    monkeypatch.setattr(Options, "__getattribute__", reading)
    written = {"sub_questions": [f"What is reason number {n} for dense bread?" for n in range(10)]}
    core = {"types": {f"q{n}": "core" for n in range(1, 11)}}
    answer = {"citations": [1], "answered": True, "answer": "For lack of gas."}
    answered = {
        s.AnswerByDefinition: answer,
        s.AnswerCoveringSubQuestions: answer,
        s.CombineSubAnswers: {"answer": "So."},
    }
    with scripted({s.DecomposeIntoSubQuestions: written, s.TypeSubQuestions: core, **answered}):
        build_program(name, Numbered(), options=options)(question=QUESTION)
    noted = {"passage_words"}  # in the answer, also of a program that shows the LM none
    assert "max_question_chars" in read
    assert read & Options.model_fields.keys() <= program_class(name).reads | noted


@pytest.mark.parametrize(("name", "given", "refused"), [
    ("direct_lm", {"top_k": 3}, "top_k"),
    ("rag", {"sift": True}, "sift"),  # set, though to the default
    ("typed_rag", {"preqrag": {"passages": 2}}, "preqrag"),
    ("coverage_definition", {"coverage_rerank": "judge", "top_k": 3}, "coverage_rerank"),
    ("hanrag", {"max_lm_calls": 9}, "max_lm_calls"),
])  # fmt: skip
def test_an_option_that_it_does_not_read_is_refused_with_those_that_it_does(name, given, refused):
    said = f"program '{name}' has no option '{refused}'. Its options: .*retries"
    with pytest.raises(InputError, match=said):
        ProgramSource(name).options(as_published=False, overrides=given)
    with pytest.raises(InputError, match=said):
        build_program(name, Numbered(), options=Options().with_given(given))


def test_defaults_are_never_refused():
    for options in (Options(), Options.as_published(), Options(sift=False).as_defaults()):
        assert build_program("rag", Numbered(), options=options).options == options
    assert ProgramSource("rag").options(as_published=True, overrides={"top_k": 3}).top_k == 3


def test_what_is_given_counts_as_set_and_nothing_else():
    options = Options(top_k=3).with_given({"reason": {"search": "sub-query"}})
    assert options.model_fields_set == {"top_k", "reason"}
    assert options.of(QuestionType.DEBATE).top_k == 3
    program_class("typed_rag").check_options(options.model_fields_set)
