"""The candidates of a compile as one HTML page that needs nothing but itself: a chart, and the table behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path

from typedrag.experiments import formats
from typedrag.experiments.pages import render_page
from typedrag.optimizers.compile.teleprompters import Candidate

PAGE = Path(__file__).with_name("trajectory_page")
_WIDTH, _HEIGHT = 760.0, 340.0
_LEFT, _RIGHT, _TOP, _BASE = 56.0, 748.0, 14.0, 292.0
_TICKS = 5
_LEAST = 0.01
"""That an axis spans."""


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate's place. Units are those of the SVG; y grows downwards."""

    x: float
    y: float
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Mark:
    """A number on an axis: its label, and x or y."""

    label: str
    at: float


@dataclass(frozen=True, slots=True)
class TrajectoryChart:
    """Scores over what the compile had spent on LM calls.

    Attributes:
        points: One for each candidate.
        best: The outline of the best so far, as the path of an SVG; empty if there is none.
        before: y of the base's score.
        scores: The axis of scores.
        calls: The axis of LM calls.
    """

    points: tuple[Point, ...]
    best: str
    before: float
    scores: tuple[Mark, ...]
    calls: tuple[Mark, ...]
    width: float = _WIDTH
    height: float = _HEIGHT
    left: float = _LEFT
    right: float = _RIGHT
    base: float = _BASE


def trajectory_chart(candidates: Sequence[Candidate]) -> TrajectoryChart:
    """Lay out the chart.

    Args:
        candidates: One or more, in order; the first is the base.
    """
    found = [score for c in candidates for score in (c.score, c.base)]
    levels = even_steps(min(found), max(found))
    calls = even_steps(0, max(1, *(c.lm_calls for c in candidates)))

    def x(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * value / calls[-1]

    def y(value: float) -> float:
        return _BASE - (_BASE - _TOP) * (value - levels[0]) / (levels[-1] - levels[0])

    best = [Point(x(c.lm_calls), y(c.score), c) for c in candidates if c.best]
    steps = [f"H{p.x:.1f}V{p.y:.1f}" for p in best[1:]]
    end = x(candidates[-1].lm_calls)
    return TrajectoryChart(
        points=tuple(Point(x(c.lm_calls), y(c.score), c) for c in candidates),
        best=f"M{best[0].x:.1f} {best[0].y:.1f}{''.join(steps)}H{end:.1f}" if best else "",
        before=y(candidates[0].score),
        scores=tuple(Mark(f"{level:g}", y(level)) for level in levels),
        calls=tuple(Mark(f"{n:,g}", x(n)) for n in calls),
    )


def even_steps(low: float, high: float) -> list[float]:
    """Round numbers at even steps, the first not above `low` and the last not below `high`.

    Example:
        >>> even_steps(0.31, 0.52), even_steps(0, 740)
        ([0.3, 0.35, 0.4, 0.45, 0.5, 0.55], [0.0, 200.0, 400.0, 600.0, 800.0])
        >>> even_steps(0.5, 0.5)
        [0.5, 0.502, 0.504, 0.506, 0.508, 0.51]
    """
    raw = max(high - low, _LEAST) / _TICKS
    power = 10.0 ** floor(log10(raw))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= raw * 0.999)
    first, last = floor(low / step + 1e-9), ceil(max(high, low + _LEAST) / step - 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


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
