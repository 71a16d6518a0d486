from __future__ import annotations

import dspy
import pytest

from tests.scripted import scripted
from typedrag.errors import StepFailed
from typedrag.metrics import Judgments
from typedrag.metrics.pairwise import PairwiseJudge, Verdicts, compare_in_both_orders
from typedrag.signatures import CompareAnswers

QUESTION = "Why does bread rise?"
GOOD, BAD = "Yeast makes gas.", "It likes to."


def prefers_good(prompt: str) -> dict[str, str]:
    return {"verdict": "first" if prompt.index(GOOD) < prompt.index(BAD) else "second"}


def compare(reply, judgments=None, answer=GOOD, other=BAD, retries=0):
    with scripted({CompareAnswers: reply}) as engine:
        judgments = Judgments() if judgments is None else judgments
        verdicts = compare_in_both_orders(PairwiseJudge(retries), judgments, QUESTION, answer, other)
    return verdicts, engine


def test_answers_are_shown_in_both_orders():
    verdicts, engine = compare(prefers_good)
    assert verdicts == Verdicts(forward="first", backward="second")
    first, second = engine.prompts
    assert first[1].index(GOOD) < first[1].index(BAD)
    assert second[1].index(BAD) < second[1].index(GOOD)
    assert QUESTION in first[1] and QUESTION in second[1]


def test_a_judge_that_prefers_a_place_says_so():
    assert compare({"verdict": "first"})[0] == Verdicts(forward="first", backward="first")


def test_either_way_round_is_the_same_two_questions():
    judgments = Judgments()
    verdicts, _ = compare(prefers_good, judgments)
    again, silent = compare(AssertionError("asked twice"), judgments, answer=BAD, other=GOOD)
    assert not silent.prompts
    assert again == Verdicts(forward=verdicts.backward, backward=verdicts.forward)


def test_equal_answers_are_a_tie_that_costs_nothing():
    verdicts, engine = compare(AssertionError("asked"), other=GOOD)
    assert verdicts == Verdicts("tie", "tie")
    assert not engine.prompts


@pytest.mark.parametrize("reply", ["The first one.", {"verdict": "both"}, {"verdict": 1}, {}])
def test_a_verdict_that_is_none_is_a_failure(reply):
    with pytest.raises(StepFailed, match="compare"):
        compare(reply)


def test_one_order_that_failed_is_asked_again_alone():
    judgments = Judgments()
    with pytest.raises(StepFailed):
        compare(lambda prompt: prefers_good(prompt) if prompt.index(GOOD) < prompt.index(BAD) else "?", judgments)
    assert len(judgments) == 1
    verdicts, engine = compare(prefers_good, judgments)
    assert verdicts == Verdicts("first", "second")
    assert len({prompt.partition("Respond")[0] for _, prompt in engine.prompts}) == 1


def test_another_lm_is_asked_anew():
    judgments = Judgments()
    compare(prefers_good, judgments)
    with dspy.context(lm=None), scripted({CompareAnswers: {"verdict": "tie"}}) as engine:
        dspy.settings.lm.kwargs["temperature"] = 0.5
        verdicts = compare_in_both_orders(PairwiseJudge(0), judgments, QUESTION, GOOD, BAD)
    assert engine.prompts and verdicts == Verdicts("tie", "tie")
