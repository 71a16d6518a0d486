"""The gate between retrieval and answer, as programs have it."""

import re

import pytest

from tests.programs.coverage.test_ways import REPLIES
from tests.programs.passages import Numbered
from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.core.question_types import Route
from typedrag.core.records import NOT_IN_COLLECTION, Answered, Passage, Step
from typedrag.programs import RAG, HANRAGOptions, Options, SubQueryOptions, TypedRAG, build_program
from typedrag.programs.answering import PassageAnswerer
from typedrag.programs.artifact import named_predictors
from typedrag.programs.loading import external_options, without_external_models
from typedrag.signatures import AnswerFromPassages

QUESTION = "How do vaccines protect the body against disease?"
REASON = "Why does homemade bread turn out dense and heavy?"
PASSAGES = [Passage(f"p{n}", f"Passage number {n}.") for n in range(4)]


def all_are(relevant: bool) -> dict:
    """A reply by which all passages that are shown are of use, or none."""
    return {s.JudgePassages: lambda prompt: {"relevant": dict.fromkeys(re.findall(r'"(p\d+)": {', prompt), relevant)}}


def relevance(steps) -> list[Step]:
    return [step for outer in steps for step in outer.walk() if step.name == "relevance"]


def test_what_does_not_pass_is_not_shown_to_the_lm():
    replies = {s.JudgePassages: {"relevant": {"p1": False, "p2": True, "p3": False, "p4": True}}}
    answerer = PassageAnswerer(AnswerFromPassages, Options(relevance="lm", answer_passages=1))
    with scripted(replies) as engine:
        prediction = answerer(question=QUESTION, passages=PASSAGES)
    assert engine.asked() == ["JudgePassages", "AnswerFromPassages"]
    assert "number 1" in engine.prompts[1][1]
    assert not any(f"number {n}" in engine.prompts[1][1] for n in (0, 2, 3))
    assert prediction.passages == (PASSAGES[1],)  # cut to `answer_passages` among those that pass
    assert answerer.lm_calls == 2


def test_where_no_answer_can_be_read_the_best_passage_that_passed_is_given():
    replies = {
        s.JudgePassages: {"relevant": {f"p{n}": n > 2 for n in range(1, 6)}},
        s.AnswerFromPassages: "torn",
    }
    with scripted(replies):
        prediction = RAG(Numbered(), options=Options(relevance="lm"))(question=QUESTION)
    assert prediction.answer.startswith("Passage 2") and prediction.citations == (f"{QUESTION}#2",)
    assert len(prediction.passages) == 3


PROGRAMS = (
    "rag", "typed_rag", "rag_fusion", "richrag", "ircot", "preqrag", "coverage_definition", "coverage_sub_questions",
    "coverage_retrieval", "coverage_end_to_end", "hanrag", "adaptive_rag",
)  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_answers_from_no_passage_where_none_passes(name):
    ways = HANRAGOptions(router=Route.SINGLE_STEP, discriminate_relevance=False)
    options = Options(relevance="lm", max_lm_calls=60, hanrag=ways).as_defaults()
    program = build_program(name, Numbered(), options=options)
    with scripted({**REPLIES, s.JudgeComplexity: {"route": "single-step"}, **all_are(False)}) as engine:
        prediction = program(question=QUESTION)
    assert relevance(prediction.steps)
    assert (prediction.answered, prediction.answer) == (Answered.NOTHING, NOT_IN_COLLECTION)
    assert prediction.citations == () and prediction.passages == ()
    assert not {"AnswerFromPassages", "AnswerRichly", "AnswerSubQuery"} & set(engine.asked())


def test_each_sub_query_has_its_gate_and_its_calls():
    ways = SubQueryOptions(combine="aggregate", search="sub-query")
    options = Options(relevance="lm", reason=ways, max_lm_calls=6)  # decompose, combine, and two sub-queries of two
    with scripted(all_are(True)) as engine:
        prediction = TypedRAG(Numbered(), options=options)(question=REASON)
    assert engine.asked().count("JudgePassages") == engine.asked().count("AnswerSubQuery") == 2
    assert "AggregateReasons" in engine.asked()
    asked = {step.input for step in relevance(prediction.steps)}
    assert len(asked) == 2 and REASON not in asked  # each by the question that it answers


def test_a_strangers_word_is_no_reason_to_load_a_model():
    options = Options(relevance="cascade:cross-encoder:some/model")
    assert external_options(options) == [("relevance", "cascade:cross-encoder:some/model")]
    assert (
        named_predictors(RAG(Numbered(), options=options)).keys()
        == named_predictors(RAG(Numbered(), options=without_external_models(options))).keys()
    )
    assert without_external_models(options).relevance == "cascade"
