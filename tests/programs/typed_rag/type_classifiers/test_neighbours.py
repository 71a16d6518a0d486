from __future__ import annotations

import json

import dspy
import pytest

from tests.scripted import scripted
from typedrag.datasets import sample_questions
from typedrag.errors import InputError
from typedrag.programs import Options
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier
from typedrag.programs.typed_rag.type_classifiers.demonstrations import DEMONSTRATIONS
from typedrag.question_types import QuestionType
from typedrag.signatures import ClassifyQuestion

LABELLED = {
    "Why do leaves fall in autumn?": "reason",
    "Why do birds fly south in autumn?": "reason",
    "How do I rake leaves?": "instruction",
    "Who invented the rake?": "factoid",
    "Should cars be banned?": "debate",
}


@pytest.fixture
def labelled(tmp_path):
    rows = [{"question": q, "question_type": t} for q, t in LABELLED.items()]
    file = tmp_path / "labelled.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def shown(classify: dspy.Module, question: str) -> list[str]:
    """The questions that the LM is shown before the one asked."""
    with scripted({ClassifyQuestion: {"question_type": "debate"}}):
        assert classify(question=question).question_type is QuestionType.DEBATE
        messages = dspy.settings.lm.history[-1]["messages"]
    asked = [m["content"].split("[[ ## question ## ]]\n")[1] for m in messages if m["role"] == "user"]
    assert asked.pop().startswith(question)
    return [text.partition("\n")[0] for text in asked]


def test_the_nearest_labelled_questions_are_shown_the_nearest_last(labelled):
    classify = build_type_classifier(Options(type_classifier=f"lm-neighbours:{labelled}", type_neighbours=2))
    assert shown(classify, "Why do leaves turn red in autumn?") == [
        "Why do birds fly south in autumn?",
        "Why do leaves fall in autumn?",
    ]
    assert shown(classify, "Should bicycles be banned?")[-1] == "Should cars be banned?"


def test_a_question_is_no_demonstration_of_itself(labelled):
    classify = build_type_classifier(Options(type_classifier=f"lm-neighbours:{labelled}", type_neighbours=4))
    found = shown(classify, "why do leaves  fall in autumn?")
    assert len(found) == 4 and "Why do leaves fall in autumn?" not in found
    everything = build_type_classifier(Options(type_classifier=f"lm-neighbours:{labelled}", type_neighbours=50))
    assert len(shown(everything, "Is it so?")) == len(LABELLED)


def test_compiled_demonstrations_stay_and_come_first(labelled):
    classify = build_type_classifier(Options(type_classifier=f"lm-neighbours:{labelled}", type_neighbours=1))
    compiled = classify.deepcopy()
    compiled.classify.demos = [dspy.Example(question="Is it so?", question_type="debate")]
    assert shown(compiled, "Who invented the wheel?") == ["Is it so?", "Who invented the rake?"]


def test_those_written_for_the_project_are_the_default():
    found = shown(build_type_classifier(Options(type_classifier="lm-neighbours")), "Why do dogs bark?")
    assert len(found) == Options().type_neighbours
    assert found[-1] == "Why do cats purr?"


def test_those_written_for_the_project_are_of_all_types_and_nobody_elses():
    assert {d.question_type for d in DEMONSTRATIONS} == set(QuestionType)
    written = {d.question.lower() for d in DEMONSTRATIONS}
    assert len(written) == len(DEMONSTRATIONS)
    assert not written & {q.question.lower() for q in sample_questions()}
    assert not written & {t.example.lower() for t in QuestionType}  # in the signature already


def test_none_is_of_nf_cats(shared_data):
    from typedrag.datasets import load_dataset

    theirs = {e.question.lower() for e in load_dataset("nf-cats", shared_data / "nf_cats").examples}
    assert not theirs & {d.question.lower() for d in DEMONSTRATIONS}


def test_a_dataset_can_be_named(shared_data):
    where = f"nf-cats:{shared_data / 'nf_cats' / 'train.csv'}"
    classify = build_type_classifier(Options(type_classifier=f"lm-neighbours:{where}", type_neighbours=3))
    found = shown(classify, "What is the difference between a fox and a wolf?")
    assert len(found) == 3 and all("difference" in question for question in found)


def test_labelled_questions_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        build_type_classifier(Options(type_classifier=f"lm-neighbours:{tmp_path / 'nowhere.jsonl'}"))
    file = tmp_path / "bare.jsonl"
    file.write_text('{"question": "Why?"}\n{"question": "How?", "question_type": "instruction"}')
    with pytest.raises(InputError, match="1 questions have no type"):
        build_type_classifier(Options(type_classifier=f"lm-neighbours:{file}"))
