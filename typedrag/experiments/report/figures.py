"""Where the parts of a bar chart lie; the report's template draws them as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from typedrag.metrics.arithmetic.estimate import Estimate

_LEFT, _TOP, _BOTTOM = 44.0, 14.0, 30.0
_HEIGHT = 320.0
_PLOT = _HEIGHT - _TOP - _BOTTOM


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with its interval. Units are those of the SVG; y grows downwards.

    Attributes:
        series: Position of the series it belongs to.
        x: Left end.
        y: Upper end.
        width: Of the bar.
        height: Of the bar.
        low: y of the interval's lower end.
        high: y of its upper end.
        estimate: What it shows.
    """

    series: int
    x: float
    y: float
    width: float
    height: float
    low: float
    high: float
    estimate: Estimate

    @property
    def middle(self) -> float:
        """x of the bar's middle."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one category, a series each.

    Attributes:
        name: Of the category.
        x: The middle.
        left: Left end.
        right: Right end.
        bars: Those that have a value.
        chance: y of the chance level; None if there is none.
    """

    name: str
    x: float
    left: float
    right: float
    bars: tuple[Bar, ...]
    chance: float | None


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid: its label and y."""

    label: str
    y: float


@dataclass(frozen=True, slots=True)
class BarChart:
    """Groups of bars over a common axis that begins at 0."""

    width: float
    height: float
    left: float
    base: float
    groups: tuple[Group, ...]
    ticks: tuple[Tick, ...]


def bar_chart(
    groups: Sequence[str],
    series: Sequence[Sequence[Estimate | None]],
    *,
    top: float,
    chance: Sequence[float | None] | None = None,
) -> BarChart:
    """Lay out a chart of grouped bars.

    Args:
        groups: Names of the categories.
        series: For each series an estimate for each group; None leaves a gap.
        top: The greatest value of the axis.
        chance: The chance level of each group.

    Example:
        >>> chart = bar_chart(["reason"], [[Estimate(50.0, 25.0, 75.0, n=8)]], top=100)
        >>> bar = chart.groups[0].bars[0]
        >>> bar.height / (chart.base - chart.ticks[-1].y)  # half of the axis
        0.5
        >>> bar.high < bar.y < bar.low < chart.base
        True
    """
    base = _TOP + _PLOT
    bar_width = max(10.0, min(34.0, 110.0 / max(1, len(series))))
    gap = bar_width * 0.8
    group_width = bar_width * len(series) + gap
    group_width = max(group_width, 96.0)

    def y(value: float) -> float:
        return base - _PLOT * min(max(value / top, 0.0), 1.0)

    laid = []
    for g, name in enumerate(groups):
        left = _LEFT + g * group_width
        first = left + (group_width - bar_width * len(series)) / 2
        bars = tuple(
            Bar(
                s, first + s * bar_width, y(e.value), bar_width, base - y(e.value), y(e.low), y(e.high), e
            )
            for s, row in enumerate(series)
            if (e := row[g])
        )  # fmt: skip
        level = chance[g] if chance else None
        laid.append(
            Group(name, left + group_width / 2, left, left + group_width, bars, None if level is None else y(level))
        )
    ticks = tuple(Tick(f"{top * i / 4:g}", y(top * i / 4)) for i in range(5))
    return BarChart(ceil(_LEFT + group_width * len(groups) + 8), _HEIGHT, _LEFT, base, tuple(laid), ticks)
