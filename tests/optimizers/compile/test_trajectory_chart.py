from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

import pytest
from matplotlib.axes import Axes

from tests.experiments.compiles import CANDIDATES, candidate
from typedrag.optimizers.compile.trajectory_chart import render_trajectories, trajectory_chart


@pytest.fixture
def drawn(monkeypatch):
    """What the axes were told to draw, by the name of the method."""
    found = {}
    for name in ("step", "axhline", "scatter"):
        draw = getattr(Axes, name)

        def kept(self, *given, draw=draw, name=name, **how):
            found.setdefault(name, []).append(given)
            return draw(self, *given, **how)

        monkeypatch.setattr(Axes, name, kept)
    return found


def test_the_best_so_far_goes_up_in_steps(drawn):
    trajectory_chart(CANDIDATES)
    assert drawn["step"] == [([40, 160, 160], [0.4, 0.55, 0.55])]
    assert drawn["axhline"] == [(0.4,)]
    assert drawn["scatter"] == [((40, 80, 160), (0.4, 0.35, 0.55)), ((120,), (0.9,))]  # on all questions, and on some


def test_without_a_best_there_is_no_line(drawn):
    assert trajectory_chart([candidate(0, 0.5)]).startswith("data:image/svg+xml;base64,")
    assert "step" not in drawn
    assert 'class="warning"' not in render_trajectories({"program": [candidate(0, 0.5)]}, "mine")


def test_each_target_has_its_chart_and_texts_are_escaped():
    page = render_trajectories({"type-classifier": CANDIDATES[:1], "answers": CANDIDATES}, "<mine>", "It pays <b>.")
    assert '<p class="warning">It pays &lt;b&gt;.</p>' in page
    charts = re.findall(r'<img class="chart" src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(charts) == 2
    assert "LM calls" in "".join(ElementTree.fromstring(base64.b64decode(charts[1])).itertext())
    assert "<title>&lt;mine&gt;</title>" in page
    assert "type-classifier: 1 candidate, 40 LM calls" in page
    assert page.count(">5 of 20</td>") == 1
    assert "<script" not in page
