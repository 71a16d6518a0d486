from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from typedrag.metrics.judges.linkage import Convention, chance_measures, expected_rank, percentile_rank


@given(st.integers(1, 30))
def test_chance_is_what_the_sums_say(n: int) -> None:
    harmonic = sum(Fraction(1, r) for r in range(1, n + 1))
    typed_rag, linkage = chance_measures(n), chance_measures(n, Convention.LINKAGE)
    assert typed_rag == pytest.approx({"mrr": float(harmonic / n), "mpr": 50 * (n + 1) / n, "rank": (n + 1) / 2})
    mrr = float((harmonic + Fraction(1, n + 1)) / (n + 1))
    assert linkage == pytest.approx({"mrr": mrr, "mpr": 50, "rank": n / 2 + 1}, abs=1e-9)


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
    assert [percentile_rank(rank, 4) for rank in (1, 2, 4, 5)] == [100, 75, 25, 0]
    for rank in (0, 6, float("nan")):
        with pytest.raises(ValueError, match="beyond 4"):
            percentile_rank(rank, 4)
    with pytest.raises(ValueError, match="nothing to rank"):
        chance_measures(0)
