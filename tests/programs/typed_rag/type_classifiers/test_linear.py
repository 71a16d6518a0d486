from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from typedrag.datasets import load_dataset, sample_questions
from typedrag.programs.typed_rag.type_classifiers import WEIGHTS, LinearTypeClassifier, LinearWeights
from typedrag.question_types import QuestionType

NO_MODEL_LIBRARIES = """
import sys
from typedrag.programs import Options, TypedRAG
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier
assert build_type_classifier(Options())(question="Why do leaves fall?").question_type == "reason"
assert not {"torch", "transformers", "sentence_transformers"} & set(sys.modules)
"""


def test_sample_questions_get_their_type():
    classify = LinearTypeClassifier()
    right = [q.id for q in sample_questions() if classify(question=q.question).question_type == q.question_type]
    assert len(right) >= 22


def test_the_first_sample_question_of_each_type_gets_its_type():
    classify = LinearTypeClassifier()
    for question in sample_questions():
        if question.id.endswith("-1"):
            assert classify(question=question.question).question_type == question.question_type


def test_probabilities_are_of_the_likeliest_type():
    prediction = LinearTypeClassifier()(question="Why do leaves fall")
    probabilities = LinearTypeClassifier().probabilities("Why do leaves fall")
    assert prediction.question_type == "reason"
    assert prediction.probability == max(probabilities.values()) == probabilities[QuestionType.REASON]
    assert set(probabilities) == set(QuestionType) and sum(probabilities.values()) == pytest.approx(1)


@pytest.mark.parametrize("mark", ["?", "\uff1f", "? ", '?"', "?)", "?\u200b", "\u061f\u00bb"])
def test_what_ends_in_a_question_mark_is_a_question(mark):
    text = "I love my dog and he loves me"
    classify = LinearTypeClassifier()
    assert classify(question=text).question_type is QuestionType.NOT_A_QUESTION
    prediction = classify(question=text + mark)
    assert prediction.question_type is not QuestionType.NOT_A_QUESTION
    assert 0 < prediction.probability <= 1


def test_accuracy_on_nf_cats_valid(shared_data):
    dataset = load_dataset("nf-cats", shared_data / "nf_cats", subset="valid")
    asked = [e for e in dataset.examples if e.question_type is not QuestionType.NOT_A_QUESTION]
    classify = LinearTypeClassifier()
    right = sum(classify(question=e.question).question_type == e.question_type for e in asked)
    assert right / len(asked) >= 0.885


def test_weights_survive_saving(tmp_path):
    weights = LinearWeights.load(WEIGHTS)
    weights.save(tmp_path / "w.npz")
    again = LinearWeights.load(tmp_path / "w.npz")
    assert all(np.array_equal(a, b) for a, b in zip(again, weights, strict=True))


def test_the_default_loads_no_library_of_neural_models():
    subprocess.run([sys.executable, "-c", NO_MODEL_LIBRARIES], check=True)
