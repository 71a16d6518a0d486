"""The candidates of a compile as a self-contained HTML page: a chart and its table."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typedrag.experiments import formats
from typedrag.experiments.pages import render_page
from typedrag.optimizers.compile.teleprompters import Candidate

PAGE = Path(__file__).with_name("trajectory_page")
_INK, _ALL, _BEST = "#7d828b", "#3f83cf", "#d9662f"
"""Colours that can be read on light and on dark pages."""


def trajectory_chart(candidates: Sequence[Candidate]) -> str:
    """A chart of scores over LM calls, as the data URL of an SVG.

    Args:
        candidates: One or more candidates, in order; the first is the base.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    best = [c for c in candidates if c.best]
    inks: dict[Any, Any] = dict.fromkeys(("xtick.color", "ytick.color", "axes.labelcolor", "axes.edgecolor"), _INK)
    content = io.BytesIO()
    with rc_context({**inks, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.set(xlabel="LM calls", ylabel="score", xlim=(0, 1.03 * max(1, *(c.lm_calls for c in candidates))))
        axes.grid(axis="y", color=_INK, alpha=0.25)
        axes.axhline(candidates[0].score, color=_INK, linestyle="--")
        for on_all, face in ((True, _ALL), (False, "none")):
            points = [(c.lm_calls, c.score) for c in candidates if (c.whole and c.single) is on_all]
            axes.scatter(*zip(*points, strict=True) if points else ([], []), facecolor=face, edgecolor=_ALL, zorder=3)
        if best:
            calls = [*(c.lm_calls for c in best), candidates[-1].lm_calls]
            axes.step(calls, [*(c.score for c in best), best[-1].score], color=_BEST, where="post")
        figure.savefig(content, format="svg", transparent=True)
    return f"data:image/svg+xml;base64,{base64.b64encode(content.getvalue()).decode()}"


def render_trajectories(trajectories: Mapping[str, Sequence[Candidate]], title: str, risk: str = "") -> str:
    """The page as HTML. Texts are escaped, and the page's policy allows no script and no loading.

    Args:
        trajectories: One or more candidates by target, in order; the first is the base.
        title: The title of the page.
        risk: The known risk of compiling against these metrics; empty if none.
    """
    return render_page(
        PAGE,
        {"value": formats.format_value, "count": formats.format_count},
        title=title,
        risk=risk,
        trajectories=[(name, candidates, trajectory_chart(candidates)) for name, candidates in trajectories.items()],
    )
