"""The candidates of a compile as one HTML page that needs nothing but itself: a chart, and the table behind it."""

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
"""Read on light pages and on dark ones."""


def trajectory_chart(candidates: Sequence[Candidate]) -> str:
    """Scores over what the compile had spent on LM calls, as the address of an SVG that holds it.

    Args:
        candidates: One or more, in order; the first is the base.
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
            found = [(c.lm_calls, c.score) for c in candidates if (c.whole and c.single) is on_all]
            axes.scatter(*zip(*found, strict=True) if found else ([], []), facecolor=face, edgecolor=_ALL, zorder=3)
        if best:
            calls = [*(c.lm_calls for c in best), candidates[-1].lm_calls]
            axes.step(calls, [*(c.score for c in best), best[-1].score], color=_BEST, where="post")
        figure.savefig(content, format="svg", transparent=True)
    return f"data:image/svg+xml;base64,{base64.b64encode(content.getvalue()).decode()}"


def render_trajectories(trajectories: Mapping[str, Sequence[Candidate]], title: str, risk: str = "") -> str:
    """The page, as HTML. Texts are escaped, and the page's policy lets no script run and nothing be loaded.

    Args:
        trajectories: The candidates by what was compiled, one or more of each, in order; the first is the base.
        title: Of the page.
        risk: What it risks to compile against this; empty if nothing that is known.
    """
    return render_page(
        PAGE,
        {"value": formats.format_value, "count": formats.format_count},
        title=title,
        risk=risk,
        trajectories=[(name, found, trajectory_chart(found)) for name, found in trajectories.items()],
    )
