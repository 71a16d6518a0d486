from __future__ import annotations

from itertools import product

import pytest

from typedrag.metrics.arithmetic.pairs import PairwiseOutcome, combine

VERDICTS = ("first", "second", "tie")


def test_only_what_is_preferred_in_both_orders_wins() -> None:
    outcomes = {pair: combine(*pair) for pair in product(VERDICTS, repeat=2)}
    assert [p for p, o in outcomes.items() if o is PairwiseOutcome.WIN] == [("first", "second")]
    assert [p for p, o in outcomes.items() if o is PairwiseOutcome.LOSS] == [("second", "first")]


@pytest.mark.parametrize(("forward", "backward"), product(VERDICTS, repeat=2))
def test_the_other_answer_fares_the_reverse(forward, backward) -> None:
    assert combine(backward, forward) is combine(forward, backward).reversed
