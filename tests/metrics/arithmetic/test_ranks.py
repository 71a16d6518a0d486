from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.metrics.judges.linkage import (
    Convention,
    chance_mpr,
    chance_mrr,
    expected_rank,
    mpr,
    mrr,
    percentile_rank,
    reciprocal_rank,
)

conventions = st.sampled_from(Convention)


@st.composite
def ranked(draw: st.DrawFn) -> tuple[int, int]:
    references = draw(st.integers(1, 12))
    return draw(st.integers(1, draw(conventions).worst_rank(references))), references


@given(st.lists(ranked(), min_size=1, max_size=20), st.randoms())
def test_means_are_bounded_whatever_the_order(ranks: list[tuple[int, int]], random) -> None:
    shuffled = random.sample(ranks, len(ranks))
    assert mpr(ranks) == pytest.approx(mpr(shuffled)) and 0 <= mpr(ranks) <= 100
    assert mrr(r for r, _ in ranks) == pytest.approx(mrr(r for r, _ in shuffled))
    assert 0 < mrr(r for r, _ in ranks) <= 1


@given(st.integers(1, 11), st.integers(1, 12))
def test_a_better_rank_is_worth_more(rank: int, more: int) -> None:
    references = rank + more
    assert reciprocal_rank(rank) > reciprocal_rank(rank + 1)
    assert percentile_rank(rank, references) > percentile_rank(rank + 1, references)


@given(st.integers(1, 30))
def test_chance_is_what_the_sums_say(n: int) -> None:
    harmonic = sum(Fraction(1, r) for r in range(1, n + 1))
    assert chance_mrr(n) == pytest.approx(float(harmonic / n))
    assert chance_mrr(n, Convention.LINKAGE) == pytest.approx(float((harmonic + Fraction(1, n + 1)) / (n + 1)))
    assert chance_mpr(n) == pytest.approx(50 * (n + 1) / n)
    assert chance_mpr(n, Convention.LINKAGE) == pytest.approx(50)


@given(st.dictionaries(st.integers(1, 9), st.floats(0, 1), min_size=1), st.floats(1e-3, 1e3))
def test_an_expected_rank_lies_among_the_ranks_whatever_the_scale(odds: dict[int, float], scale: float) -> None:
    if not sum(odds.values()) > 1e-200:
        return
    rank = expected_rank(odds)
    assert min(odds) - 1e-9 <= rank <= max(odds) + 1e-9
    assert expected_rank({r: p * scale for r, p in odds.items()}) == pytest.approx(rank)


def test_certainty_and_ignorance() -> None:
    assert expected_rank({3: 1e-300}) == 3
    assert expected_rank(dict.fromkeys(range(1, 5), 0.001)) == pytest.approx(2.5)


@pytest.mark.parametrize("odds", [{}, {1: 0.0}, {0: 1.0}, {1: -0.1, 2: 0.5}, {1: float("nan")}])
def test_no_rank_comes_from_no_odds(odds: dict[int, float]) -> None:
    with pytest.raises(ValueError, match=r"probability|count from 1"):
        expected_rank(odds)


def test_ranks_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="count from 1"):
        reciprocal_rank(0)
    with pytest.raises(ValueError, match="count from 1"):
        mrr([1, float("nan")])
    with pytest.raises(ValueError, match="beyond 4"):
        percentile_rank(6, 4)
    with pytest.raises(ValueError, match="at least one"):
        mrr([])
    with pytest.raises(ValueError, match="nothing to rank"):
        chance_mrr(0)
