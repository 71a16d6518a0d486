from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from typedrag.datasets import sample_questions
from typedrag.programs.type_classifiers import LinearTypeClassifier, LinearWeights

SHARED = Path(os.environ.get("TYPEDRAG_SHARED", Path(__file__).parents[3] / "shared"))
NF_CATS = SHARED / "data" / "nf_cats" / "valid.csv"


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
    prediction = LinearTypeClassifier()(question="Why do leaves fall?")
    assert prediction.question_type == "reason"
    assert 1 / 8 < prediction.probability <= 1


@pytest.mark.skipif(not NF_CATS.is_file(), reason="NF-CATS is not beside the project")
def test_accuracy_on_nf_cats_valid():
    with NF_CATS.open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["category"] != "NOT-A-QUESTION"]
    classify = LinearTypeClassifier()
    right = sum(classify(question=r["question"]).question_type == r["category"].lower() for r in rows)
    assert right / len(rows) >= 0.876


def test_weights_survive_saving(tmp_path):
    from typedrag.programs.type_classifiers import WEIGHTS

    weights = LinearWeights.load(WEIGHTS)
    weights.save(tmp_path / "w.npz")
    again = LinearWeights.load(tmp_path / "w.npz")
    assert (again.coefficients == weights.coefficients).all()
    assert (again.words == weights.words).all()
