import pytest

from benchmarks import verdicts


@pytest.fixture(autouse=True)
def _fewer_flips(monkeypatch):
    monkeypatch.setitem(verdicts.permutation_p_values.__kwdefaults__, "flips", 999)


@pytest.mark.parametrize("name", verdicts.VERDICTS)
def test_a_verdict_finds_a_large_gain_and_none_where_there_is_none(name):
    assert verdicts.rates(name, 0.4, samples=3).now == 1
    assert verdicts.rates(name, 0.0, samples=6).now <= 1 / 6


def test_before_those_that_failed_or_escaped_were_better():
    assert verdicts.rates("a program that escapes a metric", 0.0, samples=6) == (0, 1)
    assert verdicts.rates("a program that fails at 24 of 60", 0.0, samples=12).before > 0


def test_an_interval_that_is_told_to_be_narrow_holds_the_truth_less_often():
    shares = verdicts.holds(10, samples=200)
    assert shares["difference"].before < shares["difference"].now
    assert 0.9 < shares["difference"].now < 0.99
