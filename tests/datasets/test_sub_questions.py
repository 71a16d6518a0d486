from collections import Counter

from tests.datasets.files import refusal, write_jsonl
from typedrag.core.question_types import SubQuestionType
from typedrag.datasets import load_dataset

TYPED = {"question": "Why?", "sub_question": "What is it?", "labels": ["core", "background", "follow-up", "core"]}
JUDGED = {
    "question": "Why?",
    "engine": "You.com",
    "answer": "It is so.",
    "sub_question": "What is it?",
    "covered": True,
    "fragment": "is so",
}
UNCOVERED = {**JUDGED, "engine": "Perplexity.ai", "covered": False, "fragment": None}


def test_a_sub_question_has_the_types_its_annotators_chose(tmp_path):
    [example] = load_dataset("sub-question-types", write_jsonl(tmp_path / "types.jsonl", TYPED)).examples
    assert (example.question, example.sub_question) == ("Why?", "What is it?")
    assert example.annotated_types == (
        SubQuestionType.CORE,
        SubQuestionType.BACKGROUND,
        SubQuestionType.FOLLOW_UP,
        SubQuestionType.CORE,
    )
    assert list(example.inputs().keys()) == ["question"]


def test_an_answer_covers_a_sub_question_by_a_fragment(tmp_path):
    write_jsonl(tmp_path / "coverage.jsonl", JUDGED, UNCOVERED)
    yes, no = load_dataset("sub-question-coverage", tmp_path).examples
    assert (yes.answer, yes.sub_question, yes.covered, yes.fragment) == ("It is so.", "What is it?", True, "is so")
    assert (no.subset, no.covered, no.fragment) == ("Perplexity.ai", False, "")


def test_rows_that_do_not_fit_are_named(tmp_path):
    file = write_jsonl(tmp_path / "types.jsonl", TYPED, {**TYPED, "labels": ["core", "main"]})
    assert refusal("sub-question-types", file).startswith(f"{file}, line 2 cannot be used: labels.1: ")
    file = write_jsonl(tmp_path / "types.jsonl", {**TYPED, "labels": []})
    assert refusal("sub-question-types", file).startswith(f"{file}, line 1 cannot be used: labels: ")
    for wrong in ({"fragment": ""}, {"covered": False}):
        file = write_jsonl(tmp_path / "coverage.jsonl", UNCOVERED, {**JUDGED, **wrong})
        assert "line 2 cannot be used: it is covered without a fragment" in refusal("sub-question-coverage", file)
    file = write_jsonl(tmp_path / "coverage.jsonl", {**JUDGED, "covered": "yes"})
    assert refusal("sub-question-coverage", file).startswith(f"{file}, line 1 cannot be used: covered: ")


def test_they_have_no_home():
    for name in ("sub-question-types", "sub-question-coverage"):
        assert refusal(name) == "the labels of sub-questions have no home on the hub. Name a copy: --path"


def test_the_labels_of_the_paper(shared_data):
    types = load_dataset("sub-question-types", shared_data / "sub_questions").examples
    assert Counter(label.value for e in types for label in e.annotated_types) == {
        "core": 290,
        "follow-up": 125,
        "background": 65,
    }
    assert {len(e.annotated_types) for e in types} == {4}
    coverage = load_dataset("sub-question-coverage", shared_data / "sub_questions").examples
    assert (len(types), len(coverage), sum(e.covered for e in coverage)) == (120, 120, 45)
    assert all(e.fragment in e.answer for e in coverage)
