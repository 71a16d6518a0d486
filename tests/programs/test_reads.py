"""Which options each program reads: another that is set is refused, and none is read that is not said."""

import pytest

from tests.programs.passages import ASKING_PROGRAMS, Numbered
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.errors import InputError
from typedrag.programs import Options, build_program, program_class
from typedrag.programs.loading import ProgramSource

QUESTION = "Why does homemade bread turn out dense and heavy?"


@pytest.mark.parametrize("name", ASKING_PROGRAMS)
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
    # in the answer, also of a program that shows the LM none; by the ways of other programs that it shares
    noted = {"passage_words", "answer_prompt", "answer_length"}
    assert "max_question_chars" in read
    assert read & Options.model_fields.keys() <= program_class(name).reads | noted


def predictors(name, given=None):
    """What an LM is asked for by each predictor, but for those of an answer that other ways have failed for."""
    retriever = Numbered() if program_class(name).retrieves else None
    named = build_program(name, retriever, options=Options().with_given(given or {})).named_predictors()
    last_resorts = ("plain.", "answer_without_passages") if program_class(name).retrieves else ()
    return {n: p.signature for n, p in named if not n.startswith(last_resorts)}


@pytest.mark.parametrize("given", [{"answer_words": 77}, {"answer_prompt": "plain"}], ids=str)
@pytest.mark.parametrize("name", ASKING_PROGRAMS)
def test_how_answers_are_asked_for_is_followed_or_refused(name, given):
    if given.keys() <= program_class(name).reads:
        before, after = predictors(name), predictors(name, given)
        assert not all(signature.equals(after[n]) for n, signature in before.items())


@pytest.mark.parametrize(("name", "given", "refused"), [
    ("direct_lm", {"top_k": 3}, "top_k"),
    ("rag", {"sift": True}, "sift"),  # set, though to the default
    ("typed_rag", {"preqrag": {"passages": 2}}, "preqrag"),
    ("typed_rag", {"adaptive": {"classifier": "lm"}}, "adaptive"),
    ("coverage_definition", {"sift": False}, "sift"),
    ("coverage_definition", {"coverage_rerank": "judge", "top_k": 3}, "coverage_rerank"),
    ("hanrag", {"max_lm_calls": 9}, "max_lm_calls"),
    ("richrag", {"answer_length": "phrase"}, "answer_length"),
    ("coverage_end_to_end", {"answer_length": "phrase"}, "answer_length"),
    ("coverage_retrieval", {"rerank_everywhere": False}, "rerank_everywhere"),
])  # fmt: skip
def test_an_option_that_it_does_not_read_is_refused_with_those_that_it_does(name, given, refused):
    said = f"program '{name}' has no option '{refused}'. .*Its options: .*retries"
    with pytest.raises(InputError, match=said):
        ProgramSource(name).options(overrides=given)
    with pytest.raises(InputError, match=said):
        build_program(name, Numbered(), options=Options().with_given(given))


@pytest.mark.parametrize("type_", ["evidence-based", "comparison", "experience"])
def test_a_type_without_sub_queries_of_its_own_has_no_limit_of_them(type_):
    with pytest.raises(InputError, match=f"{type_} has no max_sub_queries; reason, instruction, debate have"):
        ProgramSource("typed_rag").options(overrides={"by_type": {type_: {"max_sub_queries": 3}}})


def test_defaults_are_never_refused():
    for options in (Options(), Options.as_published(), Options(sift=False).as_defaults()):
        assert build_program("rag", Numbered(), options=options).options == options
    assert ProgramSource("rag").options(as_published="paper", overrides={"top_k": 3}).top_k == 3
