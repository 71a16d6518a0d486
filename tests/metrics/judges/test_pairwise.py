from __future__ import annotations

import dspy
import pytest

from tests.metrics.scripted_judge import LogprobsEngine
from tests.scripted import scripted
from typedrag.core.errors import StepFailed
from typedrag.lms.adapter import SchemaAdapter
from typedrag.lms.replies import use_reply_store
from typedrag.metrics.judges.preference import PairwiseJudge, PairwiseOutcome, Verdicts, compare_in_both_orders
from typedrag.signatures.judging import CompareAnswers

QUESTION = "Why does bread rise?"
GOOD, BAD = "Yeast makes gas.", "It likes to."


def prefers_good(prompt: str) -> dict[str, str]:
    return {"verdict": "first" if prompt.index(GOOD) < prompt.index(BAD) else "second"}


def compare(reply, answer=GOOD, other=BAD, retries=0):
    with scripted({CompareAnswers: reply}) as engine:
        verdicts = compare_in_both_orders(PairwiseJudge(retries), QUESTION, answer, other)
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


def test_either_way_round_is_the_same_two_questions(tmp_path):
    with use_reply_store(tmp_path / "replies"):
        verdicts, _ = compare(prefers_good)
        again, silent = compare(AssertionError("asked twice"), answer=BAD, other=GOOD)
    assert not silent.prompts
    assert again == Verdicts(forward=verdicts.backward, backward=verdicts.forward)


def test_equal_answers_are_a_tie_that_costs_nothing():
    verdicts, engine = compare(AssertionError("asked"), other=GOOD)
    assert verdicts == Verdicts("tie", "tie", 0.5)
    assert not engine.prompts


def test_probabilities_tell_how_strong_a_liking_for_a_place_is_and_are_kept(tmp_path):
    engine = LogprobsEngine({CompareAnswers: {"verdict": "first"}}, {"first": 0.6, "second": 0.1, "tie": 0.3})
    for _ in range(2):
        lm = dspy.LM("scripted/lm", engine=engine, cache=True)
        with use_reply_store(tmp_path / "replies"), dspy.context(lm=lm, adapter=SchemaAdapter()):
            judge = PairwiseJudge()
            verdicts = compare_in_both_orders(judge, QUESTION, GOOD, BAD)
            said = judge(question=QUESTION, first_answer=GOOD, second_answer=BAD)
        assert said.probabilities == pytest.approx({"first": 0.6, "second": 0.1, "tie": 0.3})
        assert verdicts == Verdicts("first", "first", pytest.approx(0.5))
    assert len(engine.prompts) == 2


def test_what_is_no_more_than_likelier_than_the_other_is_preferred_by_so_much():
    class Undecided(dspy.Module):
        def forward(self, question: str, first_answer: str, second_answer: str) -> dspy.Prediction:
            held = {"first": 0.3, "second": 0.1} if first_answer == GOOD else {"first": 0.2, "second": 0.2}
            return dspy.Prediction(verdict="tie", probabilities={**held, "tie": 0.6})

    verdicts = compare_in_both_orders(Undecided(), QUESTION, GOOD, BAD)
    assert verdicts == Verdicts("tie", "tie", pytest.approx(0.55))
    assert (verdicts.outcome, verdicts.likelier) == (PairwiseOutcome.TIE, 1)
    other = compare_in_both_orders(Undecided(), QUESTION, BAD, GOOD)
    assert (other.preference, other.likelier) == (pytest.approx(0.45), 0)


@pytest.mark.parametrize("reply", ["The first one.", {"verdict": "both"}, {"verdict": 1}, {}])
def test_a_verdict_that_is_none_is_a_failure(reply):
    with pytest.raises(StepFailed, match="compare"):
        compare(reply)


def test_one_order_that_failed_is_asked_again_alone(tmp_path):
    with use_reply_store(tmp_path / "replies"):
        with pytest.raises(StepFailed):
            compare(lambda prompt: prefers_good(prompt) if prompt.index(GOOD) < prompt.index(BAD) else "?")
        verdicts, engine = compare(prefers_good)
    assert verdicts == Verdicts("first", "second")
    assert len({prompt.partition("Respond")[0] for _, prompt in engine.prompts}) == 1
