import pytest

from tests.programs.typed_rag.type_classifiers.test_linear import assert_right
from typedrag.core.errors import LMUnavailable
from typedrag.datasets import sample_questions
from typedrag.lms import models
from typedrag.lms.trace import collect_steps
from typedrag.programs import Options
from typedrag.programs.typed_rag import type_classifiers
from typedrag.programs.typed_rag.type_classifiers import EmbeddingTypeClassifier, build_type_classifier
from typedrag.retrieval.local_models import local_model


@pytest.fixture
def minilm():
    models.fetch(type_classifiers.ENCODER)


def test_sample_questions_get_their_type(minilm):
    classify = build_type_classifier(Options(type_classifier="embedding"))
    with collect_steps() as steps:
        given = [classify(question=q.question) for q in sample_questions()]
    right = [p.question_type == q.question_type for p, q in zip(given, sample_questions(), strict=True)]
    assert sum(right) >= 22
    assert all(1 / 8 < p.probability <= 1 for p in given)
    assert [s.name for s in steps] == ["classify"] * len(given)


def test_everyday_questions_that_it_was_not_trained_on(minilm, shared_data):
    assert_right(EmbeddingTypeClassifier(), shared_data, accuracy=0.96, type_recall=0.9, form_accuracy=0.9)


def test_a_model_that_is_not_fetched_says_how_to_fetch_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TYPEDRAG_MODELS", str(tmp_path))
    monkeypatch.setattr(type_classifiers, "_load_embedding", local_model(type_classifiers._load_embedding.__wrapped__))
    classify = build_type_classifier(Options(type_classifier="embedding"))
    with pytest.raises(
        LMUnavailable, match=r"not on this machine \(84 MB\)\. Fetch it: typedrag models fetch all-mini"
    ):
        classify(question="Why?")
