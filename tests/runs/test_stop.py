import time

import pytest

from typedrag.core.records import Usage
from typedrag.lms.cost import Spending
from typedrag.runs import AnyOf, Limits, MaxFailures, Progress

SPENT = Progress(spent=Spending(Usage(3, 200, 50), dollars=0.5))


@pytest.mark.parametrize(
    ("stopper", "reason"),
    [
        (Limits(tokens=250), "250 tokens are spent of the 250 allowed"),
        (Limits(tokens=251), ""),
        (Limits(lm_calls=3), "3 LM calls are made of the 3 allowed"),
        (Limits(lm_calls=4), ""),
        (Limits(cost=0.5), "$0.50 are spent of the $0.50 allowed"),
        (Limits(cost=0.51), ""),
        (Limits(9, 4, 0.1), "250 tokens are spent of the 9 allowed"),
        (AnyOf(Limits(lm_calls=4), Limits(9)), "250 tokens are spent of the 9 allowed"),
        (AnyOf(), ""),
    ],
)
def test_spending_is_limited(stopper, reason):
    assert stopper(SPENT) == reason


def test_a_limit_that_cannot_be_known_to_hold_stops_at_once():
    unknown = Progress(spent=Spending(Usage(1, uncounted=1), unpriced=1))
    assert "a cap of tokens cannot be kept" in Limits(tokens=9)(unknown)
    assert "the price of an LM in use is not known: give it in TYPEDRAG_PRICES" in Limits(cost=9)(unknown)


def test_failures_are_limited_step_by_step_once_enough_were_tried():
    stop = MaxFailures(0.3, {"answers": "questions"})
    for failed, tried, reason in (
        (3, 10, ""),
        (4, 9, ""),
        (4, 10, "4 of 10 questions failed, where 30% are allowed; the last: no"),
    ):
        progress = Progress(
            tried={"tiny": 20, "answers": tried}, failures={"tiny": 5, "answers": failed}, problems={"answers": "no"}
        )
        assert stop(progress) == reason


def test_a_deadline_is_counted_from_when_it_was_made():
    stop = Limits(minutes=2.0)
    assert stop(Progress()) == ""
    assert Limits(minutes=2.0, began=time.monotonic() - 121)(Progress()) == "2.0 minutes have passed of the 2 allowed"
