from __future__ import annotations

import dspy
import pytest

from tests.scripted import scripted
from typedrag.errors import LMUnavailable
from typedrag.lms.trail import recording
from typedrag.programs import Options, TypedRAG
from typedrag.programs.artifact.state import named_predictors
from typedrag.programs.typed_rag.type_classifiers import (
    CascadeTypeClassifier,
    LinearTypeClassifier,
    LMTypeClassifier,
    build_type_classifier,
)
from typedrag.question_types import QuestionType
from typedrag.records import fallbacks, total_usage
from typedrag.signatures import ClassifyQuestion

QUESTION = "Why do leaves fall?"
OTHER = {ClassifyQuestion: {"question_type": "debate"}}


class Says(dspy.Module):
    """A first make that is as sure as it is told."""

    def __init__(self, probability):
        super().__init__()
        self.probability = probability

    def forward(self, question):
        return dspy.Prediction(question_type=QuestionType.REASON, probability=self.probability)


def cascade(probability, **options):
    options = Options(retries=0, **options)
    return CascadeTypeClassifier(Says(probability), LMTypeClassifier(options), options)


@pytest.mark.parametrize(
    ("probability", "threshold", "asked"),
    [(0.9, 0.5, 0), (0.5, 0.5, 0), (0.49, 0.5, 1), (0.49, 0.4, 0), (None, 0.0, 1), (0.0, 0.0, 0), (0.99, 1.0, 1)],
)
def test_the_lm_is_asked_only_where_the_first_is_unsure(probability, threshold, asked):
    with scripted(OTHER) as engine:
        said = cascade(probability, type_threshold=threshold)(question=QUESTION)
    assert len(engine.prompts) == asked
    assert said.question_type == ("debate" if asked else "reason")
    assert said.probability == (None if asked else probability)


def test_where_the_lm_fails_the_first_ones_type_stands_and_what_was_spent_is_counted():
    with scripted({ClassifyQuestion: "torn"}), recording() as steps:
        said = cascade(0.3)(question=QUESTION)
    assert said.question_type is QuestionType.REASON and said.probability == 0.3
    assert "step 'classify' failed" in fallbacks(steps) and fallbacks(steps).endswith("taken as reason")
    assert total_usage(steps).lm_calls == 1


def test_an_lm_that_cannot_be_used_is_a_fault():
    from dspy.utils.exceptions import LMAuthError

    with scripted({ClassifyQuestion: LMAuthError("no key")}), pytest.raises(LMUnavailable):
        cascade(0.3)(question=QUESTION)


def test_members_are_named():
    made = build_type_classifier(Options(type_classifier="cascade"))
    assert isinstance(made.first, LinearTypeClassifier) and isinstance(made.second, LMTypeClassifier)
    assert list(named_predictors(made)) == ["second.classify"]
    made = build_type_classifier(Options(type_classifier="cascade:linear+embedding,lm"))
    assert [type(m).__name__ for m in (made.first, made.second)] == [
        "VotingTypeClassifier",
        "LMTypeClassifier",
    ]


def test_a_program_says_in_its_answer_that_the_second_failed(sample_retriever):
    options = Options(type_classifier="cascade", type_threshold=1.0, retries=0)
    program = TypedRAG(sample_retriever, options=options)
    assert "classifier.second.classify" in named_predictors(program)
    with scripted({ClassifyQuestion: "torn"}) as engine:
        answer = program(question=QUESTION)
    assert answer.question_type is QuestionType.REASON
    assert answer.fallback.startswith("step 'classify' failed") and answer.usage.lm_calls == len(engine.prompts)
    with scripted(OTHER):
        answer = program(question=QUESTION)
    assert answer.question_type is QuestionType.DEBATE and answer.fallback == ""
    assert [s.output[:6] for s in answer.steps[:2]] == ["reason", "debate"]
