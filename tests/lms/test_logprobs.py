import math

import pytest
from dspy.clients.call_result import AttributeDict

from typedrag.lms.asking import label_probabilities, number_probabilities

BRACE = {"token": "}", "logprob": 0.0, "top_logprobs": [{"token": "1", "logprob": -9.0}]}


def test_alternatives_that_differ_by_a_space_are_one_number():
    two = {"token": " 2", "top_logprobs": [{"token": t, "logprob": math.log(0.2)} for t in (" 2", "2", "1", '"')]}
    assert number_probabilities({"content": [two, BRACE]}, 2, (1, 2)) == pytest.approx({1: 1 / 3, 2: 2 / 3})


def test_a_token_can_end_the_object():
    two = {"token": "2}", "top_logprobs": [{"token": "2}", "logprob": -0.5}, {"token": "2", "logprob": -0.5}]}
    assert number_probabilities({"content": [two]}, 2, (1, 2)) == {1: 0.0, 2: 1.0}


def test_the_value_is_where_the_number_was_written_last():
    thinking = {"token": "3", "top_logprobs": [{"token": "3", "logprob": 0.0}]}
    value = {"token": "3", "top_logprobs": [{"token": t, "logprob": math.log(0.5)} for t in "34"]}
    assert number_probabilities({"content": [thinking, value, BRACE]}, 3, (3, 4)) == pytest.approx({3: 0.5, 4: 0.5})


def test_numbers_that_are_not_allowed_have_no_share():
    two = {"token": "2", "top_logprobs": [{"token": t, "logprob": math.log(0.25)} for t in ("2", "7", "true", "2.0")]}
    assert number_probabilities({"content": [two]}, 2, (1, 2)) == {1: 0.0, 2: 1.0}


def test_records_with_attributes_are_read_too():
    two = {"token": "2", "top_logprobs": [AttributeDict({"token": "2", "logprob": 0.0})]}
    assert number_probabilities(AttributeDict({"content": [AttributeDict(two)]}), 2, (1, 2)) == {1: 0.0, 2: 1.0}


@pytest.mark.parametrize(
    "logprobs",
    [None, {}, {"content": []}, {"content": [BRACE]}, {"content": [{"token": "2", "top_logprobs": []}]}],
)
def test_there_are_none_where_the_server_gave_none(logprobs):
    assert number_probabilities(logprobs, 2, (1, 2)) is None


def spelled(*tokens: str, **alternatives: float) -> dict:
    """A reply whose second token has these alternatives."""
    shown = [{"token": t.replace("_", " "), "logprob": math.log(p)} for t, p in alternatives.items()]
    return {"content": [{"token": t, "top_logprobs": shown if n == 1 else []} for n, t in enumerate(tokens)]}


LABELS = ("experience", "evidence-based", "reason")


def test_a_label_s_first_token_tells_labels_apart():
    reply = spelled('{"reason": "', "reas", 'on"}', reas=0.5, ex=0.25, e=0.2)
    found = label_probabilities(reply, "reason", LABELS)
    assert found == pytest.approx({"experience": 1 / 3, "evidence-based": 0, "reason": 2 / 3})
    assert sum(found.values()) == pytest.approx(1)


def test_a_label_s_token_can_carry_what_is_around_it():
    reply = spelled('{"type":', ' "reason"', "}", **{' "reason"': 0.6, '_"evidence': 0.2})
    assert label_probabilities(reply, "reason", LABELS)["evidence-based"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    "logprobs", [None, {"content": []}, spelled("{", "reason", "}"), spelled("{", "other", reason=1.0)]
)
def test_without_alternatives_to_the_label_nothing_is_probable(logprobs):
    assert label_probabilities(logprobs, "reason", LABELS) is None
