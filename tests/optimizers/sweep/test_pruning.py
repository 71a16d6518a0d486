from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from typedrag.optimizers.sweep.config import ConstraintConfig, ObjectiveConfig
from typedrag.optimizers.sweep.objectives import beats, front, levels
from typedrag.optimizers.sweep.pruning import goes_on

F1, TOKENS = ObjectiveConfig(measure="em/f1"), ObjectiveConfig(measure="cost/tokens")


def trial(*values, tokens=None):
    return {"em/f1": list(values), **({"cost/tokens": [tokens] * len(values)} if tokens is not None else {})}


def test_of_two_the_worse_stays_behind_and_of_equals_both_go_on():
    contest = partial(goes_on, objectives=[F1], constraints=[], growth=2)
    assert contest(trial(0.1), [], 1)  # nobody waits for others to come
    assert contest(trial(0.5), [trial(0.4)], 1)
    assert not contest(trial(0.4), [trial(0.5)], 1)
    assert contest(trial(0.4), [trial(0.4)] * 5, 1)


def test_one_of_so_many_goes_on():
    others = [trial(n / 10) for n in range(1, 8)]
    for growth, allowed in ((2, 4), (4, 2)):
        contest = partial(goes_on, objectives=[F1], constraints=[], growth=growth)
        assert sum(contest(t, [o for o in others if o is not t] + [trial(0)], 1) for t in others) == allowed


def test_only_the_first_questions_count():
    contest = partial(goes_on, objectives=[F1], constraints=[], growth=2)
    assert contest(trial(0.5, 0.5), [trial(0.4, 0.4, 1.0, 1.0)], 2)


def test_a_question_that_failed_neither_rewards_nor_punishes():
    """Without the hard question its mean would be 0.8; on what both answered they are level."""
    hard_failed, whole = trial(None, 0.8), trial(0.2, 0.8)
    assert levels([hard_failed, whole], [F1], 2) == [[0.0], [0.0]]
    contest = partial(goes_on, objectives=[F1], constraints=[], growth=2)
    assert contest(whole, [hard_failed], 2)


def test_with_several_objectives_who_is_beaten_in_all_stays_behind():
    contest = partial(goes_on, objectives=[F1, TOKENS], constraints=[], growth=2)
    dear_and_good, cheap_and_bad = trial(0.9, tokens=900), trial(0.1, tokens=100)
    assert contest(cheap_and_bad, [dear_and_good], 1)
    assert contest(dear_and_good, [cheap_and_bad], 1)
    assert not contest(trial(0.05, tokens=200), [dear_and_good, cheap_and_bad], 1)


def test_who_passes_a_limit_is_behind_all_that_do_not():
    contest = partial(
        goes_on, objectives=[F1], constraints=[ConstraintConfig(measure="cost/tokens", at_most=500)], growth=2
    )
    assert not contest(trial(0.9, tokens=600), [trial(0.1, tokens=400)], 1)
    assert contest(trial(0.1, tokens=400), [trial(0.9, tokens=600)], 1)
    assert not contest(trial(0.9, tokens=700), [trial(0.1, tokens=600)], 1)


@given(st.lists(st.lists(st.integers(0, 4).map(float), min_size=2, max_size=2), min_size=1, max_size=8))
def test_the_front_is_of_those_that_none_beats_and_is_never_empty(reached):
    found = front(reached)
    assert found
    assert all(any(beats(reached[f], reached[i]) for f in found) for i in range(len(reached)) if i not in found)


@given(st.lists(st.lists(st.floats(0, 1), min_size=4, max_size=4), min_size=2, max_size=6))
def test_where_nothing_is_missing_levels_order_as_means_do(columns):
    trials = [trial(*column) for column in columns]
    reached = [level[0] for level in levels(trials, [F1], 4)]
    means = [sum(column) / 4 for column in columns]
    for i in range(len(trials)):
        for j in range(len(trials)):
            if means[i] - means[j] > 1e-9:
                assert reached[i] > reached[j]
