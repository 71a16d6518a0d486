"""Charts of results: a row for each system, a dot where it was measured to be, a line over its interval."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typedrag.core.records import Estimate
from typedrag.experiments.formats import format_value

INK, BEYOND, WITHIN = "#777b84", "#d05a22", "#3a7cc6"
"""Of text and lines, before `_STYLE`; of a dot whose interval leaves the line out; of one whose interval does not."""
_STYLE = "svg{color:#4b5059}@media (prefers-color-scheme:dark){svg{color:#b9bec7}}"
"""Colours the ink: dark on light, light on dark."""
_WIDTH, _ROW, _FRAME = 8.4, 0.29, 1.2
"""In inches: the whole figure; a row; what a panel takes besides its rows."""
_CHARACTERS = 88
"""How many fit beside one another."""


@dataclass(frozen=True)
class Panel:
    """A part of a chart.

    Attributes:
        title: What is measured, and of what.
        dots: What was measured, by the row's label.
        line: The value at no difference, or at chance.
        less_is_better: Whether small values are the better ones, as those of costs are.
    """

    title: str
    dots: Mapping[str, Estimate]
    line: float | None = 0.0
    less_is_better: bool = False


def draw(panels: Sequence[Panel], file: Path) -> None:
    """Write a chart as SVG. The same panels give the same bytes.

    Args:
        panels: One or more; two beside each other where these share their rows.
        file: The file to write.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = 2 if all(list(a.dots) == list(b.dots) for a, b in zip(panels[::2], panels[1::2], strict=False)) else 1
    heights = [
        _FRAME + _ROW * max(len(p.dots) for p in panels[at : at + columns]) for at in range(0, len(panels), columns)
    ]
    labels = max(len(label) for panel in panels for label in panel.dots)
    colors: dict[Any, Any] = dict.fromkeys(
        ("text.color", "xtick.color", "ytick.color", "axes.labelcolor", "axes.edgecolor"), INK
    )
    spines: dict[Any, Any] = {f"axes.spines.{side}": False for side in ("top", "right", "left")}
    with rc_context({**colors, **spines, "svg.fonttype": "none", "svg.hashsalt": file.stem, "font.size": 11}):
        figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
        grid = figure.subplots(len(heights), columns, squeeze=False, sharex="col", height_ratios=heights)
        for at, axes in enumerate(grid.flat):
            if at < len(panels):
                _draw_panel(axes, panels[at], labelled=at % columns == 0, wrap=(_CHARACTERS - labels) // columns)
            else:
                axes.set_axis_off()
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    style = '<style type="text/css">'
    file.write_text(drawn.getvalue().replace(INK, "currentColor").replace(style, f"{style}{_STYLE}", 1), "utf-8")


def described(panels: Sequence[Panel]) -> str:
    """The content of a chart, in a few words, for those who do not see it."""
    return "Chart. " + " ".join(f"{panel.title}: {_outcome(panel)}." for panel in panels)


def beyond(dot: Estimate, line: float | None) -> bool:
    """True if an interval leaves the line out."""
    return line is not None and dot.interval is not None and not dot.interval[0] <= line <= dot.interval[1]


def _outcome(panel: Panel) -> str:
    if panel.line is None:
        return ", ".join(f"{label} {format_value(dot.value)}" for label, dot in panel.dots.items())
    outside = {label: dot.value > panel.line for label, dot in panel.dots.items() if beyond(dot, panel.line)}
    sides = ((side, [k for k, above in outside.items() if above is is_above])
             for side, is_above in (("above", True), ("below", False)))  # fmt: skip
    parts = (f"{', '.join(labels)} {side} the line" for side, labels in sides if labels)
    return "; ".join(parts) or "every interval holds the line"


def _draw_panel(axes: Any, panel: Panel, *, labelled: bool, wrap: int) -> None:
    axes.set_title(textwrap.fill(panel.title, wrap, break_on_hyphens=False), fontsize=11, loc="left")
    axes.set_yticks(range(len(panel.dots)), list(panel.dots) if labelled else [""] * len(panel.dots))
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelbottom=True)
    axes.set_ylim(len(panel.dots) - 0.5, -0.5)
    axes.grid(axis="x", color=INK, alpha=0.2, clip_on=False)
    axes.set_axisbelow(True)
    axes.locator_params(axis="x", nbins=4)
    if panel.line is not None:
        axes.axvline(panel.line, color=INK, linestyle="--", linewidth=1, clip_on=False)
        left, right = ("better", "worse") if panel.less_is_better else ("worse", "better")
        axes.set_xlabel(f"← {left} | {right} →", fontsize=9)
    for at, dot in enumerate(panel.dots.values()):
        color = BEYOND if beyond(dot, panel.line) else WITHIN
        axes.plot(
            dot.interval or (dot.value, dot.value),
            (at, at),
            color=color,
            linewidth=2,
            solid_capstyle="round",
            clip_on=False,
        )
        axes.plot(dot.value, at, "o", color=color, markersize=7, clip_on=False)
