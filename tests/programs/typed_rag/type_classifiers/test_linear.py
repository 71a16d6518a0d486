import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest

from benchmarks.calibration import expected_calibration_error
from typedrag.core.question_types import QuestionForm, QuestionType
from typedrag.datasets import load_dataset, sample_questions
from typedrag.programs.typed_rag.type_classifiers import LinearTypeClassifier

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


ASKED = {
    "compare the 2019 and 2023 travel policies": "comparison",
    "copper or plastic pipes hot water": "comparison",
    "Tell me why the import job stalled on Sunday": "reason",
    "printer jams cause": "reason",
    "hw do i rset my pasword": "instruction",
    "Walk me through adding a second supplier to an order": "instruction",
    "Summarise what the audit says about petty cash": "evidence-based",
    "probation period meaning": "evidence-based",
    "Recommend a quiet cafe near the museum": "experience",
    "standing desk honest reviews": "experience",
    "Make the case for and against tipping in restaurants": "debate",
    "facial recognition in shops right or wrong": "debate",
    "Look up the phone number of the registry office": "factoid",
    "population of tromso": "factoid",
    "We moved in and love it. One thing: the boiler shows F28 and goes off. How do we get it going again?": (
        "instruction"
    ),
    "Cheers, that did the trick!": "not-a-question",
    "how r u": "not-a-question",
}


@pytest.mark.parametrize("question", ASKED)
def test_no_question_mark_is_needed(question):
    assert LinearTypeClassifier()(question=question).question_type == ASKED[question]


def test_everyday_questions_that_it_was_not_trained_on(shared_data):
    assert_right(LinearTypeClassifier(), shared_data, accuracy=0.93, type_recall=0.85, form_accuracy=0.8)


def assert_right(classify, shared_data, accuracy, type_recall, form_accuracy):
    """Measure a classifier on the half of the everyday questions that is for choosing."""
    examples = load_dataset("everyday", shared_data / "everyday" / "questions.jsonl").examples
    of: dict[str, list[bool]] = defaultdict(list)
    probabilities = []
    for e in examples:
        said = classify(question=e.question)
        right = said.question_type == e.question_type
        probabilities.append(said.probability)
        for group in ("all", e.question_type, e.subset):
            of[group].append(right)
    assert np.mean(of["all"]) >= accuracy
    assert min(np.mean(of[t]) for t in QuestionType) >= type_recall
    assert min(np.mean(of[form]) for form in QuestionForm) >= form_accuracy
    assert expected_calibration_error(probabilities, of["all"]) <= 0.05


def test_questions_of_nf_cats_that_people_labelled(shared_data):
    examples = load_dataset("nf-cats", shared_data / "nf_cats", subset="valid").examples
    by_people = [e for e in examples if e.annotated_by != "unsupervised"]
    classify = LinearTypeClassifier()
    right = sum(classify(question=e.question).question_type == e.question_type for e in by_people)
    assert right / len(by_people) >= 0.79  # what the classifier reached that was trained on NF-CATS alone


def test_the_default_loads_no_library_of_neural_models():
    subprocess.run([sys.executable, "-c", NO_MODEL_LIBRARIES], check=True)
