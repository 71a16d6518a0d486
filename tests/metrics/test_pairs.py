from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.metrics.pairs import Comparison, Outcome, combine, win_rates

VERDICTS = ("first", "second", "tie")
names = st.sampled_from("abcd")
comparisons = st.lists(
    st.builds(Comparison, names, names, st.sampled_from(Outcome)).filter(lambda c: c.program != c.other), max_size=40
)


def test_only_what_is_preferred_in_both_orders_wins() -> None:
    outcomes = {pair: combine(*pair) for pair in product(VERDICTS, repeat=2)}
    assert [p for p, o in outcomes.items() if o is Outcome.WIN] == [("first", "second")]
    assert [p for p, o in outcomes.items() if o is Outcome.LOSS] == [("second", "first")]


@pytest.mark.parametrize(("forward", "backward"), product(VERDICTS, repeat=2))
def test_the_other_answer_fares_the_reverse(forward, backward) -> None:
    assert combine(backward, forward) is combine(forward, backward).reversed


@given(comparisons, st.randoms())
def test_a_cell_and_its_mirror_sum_to_one_whatever_the_order(made: list[Comparison], random) -> None:
    rates = win_rates(made)
    assert {p: {o: pytest.approx(r) for o, r in row.items()} for p, row in rates.items()} == win_rates(
        random.sample(made, len(made))
    )
    for program, row in rates.items():
        assert program not in row
        for other, rate in row.items():
            assert 0 <= rate <= 1 and rate + rates[other][program] == pytest.approx(1)


@given(comparisons)
def test_it_does_not_matter_who_is_named_first(made: list[Comparison]) -> None:
    turned = [Comparison(c.other, c.program, c.outcome.reversed) for c in made]
    assert win_rates(made) == win_rates(turned)


def test_ties_are_half_a_win() -> None:
    made = [Comparison("rag", "lm", o) for o in (Outcome.WIN, Outcome.TIE, Outcome.TIE, Outcome.LOSS, Outcome.WIN)]
    assert win_rates(made) == {"rag": {"lm": 0.6}, "lm": {"rag": 0.4}}


def test_none_and_oneself() -> None:
    assert win_rates([]) == {}
    with pytest.raises(ValueError, match="itself"):
        win_rates([Comparison("rag", "rag", Outcome.TIE)])
