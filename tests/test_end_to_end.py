"""Real questions, a real index, real models."""

from __future__ import annotations

import pytest

from typedrag.datasets import sample_questions
from typedrag.lm import open_lm, use_lm
from typedrag.models import fetch
from typedrag.programs import Options, TypedRAG
from typedrag.programs.sub_queries import content_words
from typedrag.records import Answer

FIRST = [q for q in sample_questions() if q.id.endswith("-1")]


def ids(question):
    return question.question_type.value


@pytest.mark.parametrize("question", FIRST, ids=ids)
@pytest.mark.parametrize("options", [Options(retries=0), Options.as_published()], ids=["default", "published"])
def test_the_small_model_answers_every_type(sample_retriever, small_lm, question, options):
    with use_lm(small_lm):
        answer = Answer.from_prediction(TypedRAG(sample_retriever, options=options)(question=question.question))
    assert answer.answer
    assert answer.question_type == question.question_type
    assert answer.passages
    assert set(answer.citations) <= {p.id for p in answer.passages}
    assert answer.usage.lm_calls >= 1


@pytest.fixture(scope="module")
def default_lm():
    fetch("qwen2.5-coder-1.5b")
    return open_lm("embedded:qwen2.5-coder-1.5b")


@pytest.mark.qwen
@pytest.mark.parametrize("question", FIRST, ids=ids)
def test_the_default_model_answers_every_type_from_what_it_cites(sample_retriever, default_lm, question):
    with use_lm(default_lm):
        answer = Answer.from_prediction(TypedRAG(sample_retriever)(question=question.question))
    assert answer.question_type == question.question_type
    assert answer.fallback == ""
    cited = [p for p in answer.passages if p.id in answer.citations]
    labelled = set(question.passage_ids)
    assert len(labelled & set(answer.citations)) >= 2
    words = content_words(answer.answer)
    from_cited = words & content_words(" ".join(p.text for p in cited))
    assert len(from_cited) / len(words) >= 0.6
