from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from typedrag.datasets import sample_questions
from typedrag.errors import LMUnavailable
from typedrag.lms import models
from typedrag.lms.trail import recording
from typedrag.programs import Options
from typedrag.programs.typed_rag.type_classifiers import build_type_classifier, encoder
from typedrag.question_types import QuestionType


@pytest.fixture
def minilm():
    models.fetch(encoder.ENCODER)


@pytest.mark.parametrize("make", ["embedding", "linear+embedding"])
def test_sample_questions_get_their_type(minilm, make):
    classify = build_type_classifier(Options(type_classifier=make))
    with recording() as steps:
        given = [classify(question=q.question) for q in sample_questions()]
    right = [p.question_type == q.question_type for p, q in zip(given, sample_questions(), strict=True)]
    assert sum(right) >= 21
    assert all(1 / 8 < p.probability <= 1 for p in given)
    assert [s.name for s in steps] == ["classify"] * len(given)  # a vote is one step


def test_a_vote_is_the_geometric_mean_of_its_members(minilm):
    question = "Should I water my tomatoes at night?"
    vote, linear, embedding = (
        build_type_classifier(Options(type_classifier=make)).probabilities(question)
        for make in ("linear+embedding", "linear", "embedding")
    )
    means = {t: sqrt(linear[t] * embedding[t]) for t in QuestionType}
    for question_type in QuestionType:
        assert vote[question_type] == pytest.approx(means[question_type] / sum(means.values()))


def test_embeddings_are_the_same_whatever_they_are_embedded_with(minilm):
    questions = ["Why?", "How do I paint the walls of a room that has never been painted before?"] * 20
    together = encoder.embed(questions)
    assert together.shape == (40, 7 * 384)
    for place in (0, 1, 39):
        assert np.allclose(together[place], encoder.embed([questions[place]])[0], atol=1e-5)
    lengths = np.linalg.norm(together[0].reshape(7, 384), axis=1)
    assert np.allclose(lengths, 1, atol=1e-5)


def test_a_model_that_is_not_fetched_says_how_to_fetch_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_MODELS", str(tmp_path))
    monkeypatch.setattr(encoder, "_encoder", encoder._encoder.__wrapped__)
    classify = build_type_classifier(Options(type_classifier="embedding"))
    with pytest.raises(
        LMUnavailable, match=r"not on this machine \(84 MB\)\. Fetch it: typedrag models fetch all-mini"
    ):
        classify(question="Why?")
