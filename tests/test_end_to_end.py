"""Real questions, a real index, real models."""

import pytest

from tests.programs.ways import PUBLISHED
from typedrag.core.records import Answer, Answered
from typedrag.datasets import sample_questions
from typedrag.datasets.sample import PASSAGES
from typedrag.lms.lm import open_lm, use_lm
from typedrag.lms.models import fetch
from typedrag.programs import Options, TypedRAG
from typedrag.programs.sub_queries import content_words
from typedrag.retrieval import read_passages

TEXTS = {p.id: p.text for p in read_passages([PASSAGES])}
FIRST = [q for q in sample_questions() if q.id.endswith("-1")]
SPLIT = ("comparison", "reason")
"""Types whose questions are split, each in another way; a debate takes the default model minutes."""


def ids(question):
    return question.question_type.value


@pytest.mark.parametrize(
    ("question", "options"),
    [*((question, Options(retries=0)) for question in FIRST), (FIRST[-1], PUBLISHED)],
    ids=[*map(ids, FIRST), f"{ids(FIRST[-1])} as published"],
)
def test_the_small_model_answers_every_type(sample_retriever, small_lm, question, options):
    with use_lm(small_lm):
        answer = Answer.from_prediction(TypedRAG(sample_retriever, options=options)(question=question.question))
    assert answer.answer
    assert answer.question_type == question.question_type
    assert answer.passages or answer.answered is Answered.KNOWLEDGE
    assert set(answer.citations) <= {p.id for p in answer.passages}
    assert answer.usage.lm_calls >= 1


@pytest.fixture(scope="module")
def default_lm():
    fetch("qwen2.5-coder-1.5b")
    return open_lm("embedded:qwen2.5-coder-1.5b")


@pytest.mark.qwen
@pytest.mark.parametrize("question", [q for q in FIRST if q.question_type in SPLIT], ids=ids)
def test_the_default_model_answers_what_is_split_from_what_it_cites(sample_retriever, default_lm, question):
    # one call at a time: what llama.cpp writes of one prompt depends on those that it reads beside it
    with use_lm(default_lm):
        program = TypedRAG(sample_retriever, options=Options(threads=1))
        answer = Answer.from_prediction(program(question=question.question))
    assert answer.question_type == question.question_type
    assert answer.fallback == ""
    # of the comparison it cites one passage, which speaks of both items; it cited two when the purpose had other words
    least = 1 if question.question_type == "comparison" else 2
    assert len(set(question.passage_ids) & set(answer.citations)) >= least
    said = content_words(answer.answer) - content_words(question.question)
    assert shared(said, answer.citations) / len(said) >= 0.3  # it rephrases, so far from 1
    for other in sample_questions():
        if not set(other.passage_ids) & set(answer.citations):
            assert shared(said, answer.citations) > shared(said, other.passage_ids)


def shared(words, passage_ids):
    """How many of the words stand in these passages of the sample corpus."""
    return len(words & content_words(" ".join(TEXTS[i] for i in passage_ids)))
