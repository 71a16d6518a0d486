from __future__ import annotations

import json

import dspy
import pytest

from tests.metrics.scripted_judge import scripted_judge
from typedrag.core.errors import InputError, NotMeasurable
from typedrag.core.question_types import SubQuestionType
from typedrag.core.records import Reference, SubQuestion
from typedrag.lms.replies import use_reply_store
from typedrag.metrics import Preference, Scored
from typedrag.signatures.judging import CompareAnswers
from typedrag.signatures.sub_question_coverage import (
    DecomposeIntoSubQuestions,
    FindAnsweringSentences,
    TypeSubQuestions,
)

TYPES = list(SubQuestionType)
WORDS = "gas yeast bakery".split()
"""What the sub-questions are about: a core, a background and a follow-up one."""
OWN = tuple(SubQuestion(f"What of the {word}?", type_) for word, type_ in zip(WORDS, TYPES, strict=True))
ANYTHING = dspy.Prediction(answer="Anything.")


def find(prompt: str) -> dict:
    """Each sub-question is answered by the first sentence that has its word."""

    def field(name: str) -> dict:
        return json.loads(prompt.partition(f"[[ ## {name} ## ]]\n")[2].partition("\n")[0])

    sentences = field("sentences").items()
    asked = field("sub_questions").items()
    return {"verdicts": {k: next((int(n) for n, s in sentences if q.split()[-1][:-1] in s), 0) for k, q in asked}}


REPLIES = {
    DecomposeIntoSubQuestions: {"sub_questions": [s.text for s in OWN] + [f"What of part {n}?" for n in range(7)]},
    TypeSubQuestions: {"types": {f"q{n + 1}": str(TYPES[n % 3]) for n in range(10)}},
    FindAnsweringSentences: find,
    CompareAnswers: {"verdict": "first"},
}


def compared(first: str, second: str, preference: float, question: str = "Why does bread rise?") -> dspy.Example:
    answers = (f"It is the {first}.", f"It is the {second}.")
    return dspy.Example(
        id="q1", question=question, answers_compared=answers, preference=preference, sub_questions=OWN
    ).with_inputs("question")


def measured(example: dspy.Example, **options):
    lm, engine = scripted_judge(REPLIES)
    return Preference(lm, coverage={"cite": "sentences"}, **options)(example, ANYTHING), engine


@pytest.mark.parametrize(
    ("first", "second", "preference", "accuracy", "core_only"),
    [
        ("gas", "bakery", 1.0, 1.0, 1.0),
        ("gas", "bakery", -1.0, 0.0, 0.0),
        ("yeast", "bakery", 1.0, 1.0, 0.5),  # neither covers the core sub-question
        ("oven", "bakery", 0.5, 1.0, 0.5),
        ("gas", "gas", 1.0, 0.5, 0.5),
    ],
)
def test_the_rating_prefers_what_people_prefer(first, second, preference, accuracy, core_only):
    result, engine = measured(compared(first, second, preference))
    assert result.measures == {"accuracy": accuracy, "core_only": core_only}
    assert result.score == accuracy
    assert set(engine.asked()) == {"FindAnsweringSentences"}


def test_other_weights_prefer_others_and_cost_no_lm_call(tmp_path):
    example = compared("bakery", "yeast", 1.0)
    by_weights = {}
    for weights in ((1, 0.5, -1), (0, 0, 1)):
        with use_reply_store(tmp_path / "replies"):
            result, engine = measured(example, weights=weights)
        by_weights[weights] = result.score, len(engine.prompts)
    assert by_weights == {(1, 0.5, -1): (0.0, 2), (0, 0, 1): (1.0, 0)}


def test_references_of_different_labels_are_compared_all_with_all():
    example = dspy.Example(
        id="q1",
        question="Why does bread rise?",
        references=(Reference("The gas.", 3), Reference("The yeast.", 2), Reference("A bakery.", 1)),
    ).with_inputs("question")
    result, engine = measured(example)
    assert result.measures == {"accuracy": 1.0, "core_only": pytest.approx(2.5 / 3)}
    assert len(result.details["differences"]) == 3
    assert engine.asked()[:2] == ["DecomposeIntoSubQuestions", "TypeSubQuestions"]


def test_an_lm_that_always_likes_the_first_is_a_coin_toss():
    result, engine = measured(compared("gas", "bakery", 1.0), lm_judge=True)
    assert result.measures["lm_judge"] == 0.5
    assert engine.asked().count("CompareAnswers") == 2


def test_over_all_questions_weights_are_found_anew():
    scored = []
    for n in range(10):
        example = compared("yeast", "gas", 1.0, question=f"Why does bread {n} rise?")
        result, _ = measured(example)
        scored.append(Scored(result.score, measures=result.measures, details=result.details))
    lm, _ = scripted_judge(REPLIES)
    whole = Preference(lm).over_all(scored)
    assert whole["cross_validated"] == 1.0
    assert whole["best_background"] > whole["best_core"]
    assert whole.keys() == {"cross_validated", "best_core", "best_background", "best_follow_up"}


def test_what_lacks_two_answers_cannot_be_measured():
    lm, _ = scripted_judge(REPLIES)
    with pytest.raises(NotMeasurable, match="no answers that people have compared"):
        Preference(lm).require(dspy.Example(question="Why?"))
    with pytest.raises(NotMeasurable):
        Preference(lm).require(dspy.Example(id="q", question="Why?", references=(Reference("One.", 1),)))
    with pytest.raises(InputError, match="needs a scorer"):
        Preference(None, lm_judge=True)
