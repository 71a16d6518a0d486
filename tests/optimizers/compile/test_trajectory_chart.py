from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.experiments.compiles import CANDIDATES, candidate
from typedrag.optimizers.compile.trajectory_chart import even_steps, render_trajectories, trajectory_chart

shares = st.floats(0, 1, allow_nan=False)


@given(shares, shares)
def test_an_axis_holds_all_values_at_few_even_steps(one, other):
    low, high = sorted((one, other))
    steps = even_steps(low, high)
    assert steps[0] <= low + 1e-9
    assert steps[-1] >= high - 1e-9
    assert 2 <= len(steps) <= 8
    assert steps == sorted(set(steps))


@given(st.lists(st.tuples(shares, shares, st.integers(0, 5000)), min_size=1, max_size=9))
def test_all_candidates_lie_within_the_plot(found):
    made = [replace(candidate(n, s), base=b, lm_calls=c, best=n == 0) for n, (s, b, c) in enumerate(found)]
    chart = trajectory_chart(made)
    for point in chart.points:
        assert chart.left - 0.01 <= point.x <= chart.right + 0.01
        assert 0 <= point.y <= chart.base + 0.01


def test_the_best_so_far_goes_up_in_steps():
    chart = trajectory_chart(CANDIDATES)
    first, _, partial, last = chart.points
    assert chart.best == f"M{first.x:.1f} {first.y:.1f}H{last.x:.1f}V{last.y:.1f}H{last.x:.1f}"
    assert chart.before == first.y
    assert partial.y < last.y  # higher, and on a quarter of the questions


def test_without_a_best_there_is_no_line():
    assert trajectory_chart([candidate(0, 0.5)]).best == ""
    assert 'class="warning"' not in render_trajectories({"program": [candidate(0, 0.5)]}, "mine")
    assert '<path class="best"' not in render_trajectories({"program": [candidate(0, 0.5)]}, "mine")


def test_each_target_has_its_chart_and_texts_are_escaped():
    page = render_trajectories({"type-classifier": CANDIDATES[:1], "answers": CANDIDATES}, "<mine>", "It pays <b>.")
    assert '<p class="warning">It pays &lt;b&gt;.</p>' in page
    assert page.count("<svg") == 2
    assert "<title>&lt;mine&gt;</title>" in page
    assert "type-classifier: 1 candidate, 40 LM calls" in page
    assert page.count(" on 5 of 20</title>") == 1
    assert "<script" not in page
