from __future__ import annotations

import math

import pytest
from dspy.clients.call_result import AttributeDict

from typedrag.metrics.token_probabilities import number_probabilities

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
