"""Claims about measurements, as ratios to a baseline of the same run, and their table."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """A measurement beside its baseline.

    Attributes:
        what: Its name.
        measured: The measured value, in `unit`.
        baseline: The baseline's value, in `unit`.
        unit: The unit of both.
        most: The goal: the ratio is at most this.
        least: The goal: the ratio is at least this.
        limit: The goal: the measured value is at most this.
    """

    what: str
    measured: float
    baseline: float
    unit: str
    most: float | None = None
    least: float | None = None
    limit: float | None = None

    @property
    def ratio(self) -> float:
        """Measured over baseline."""
        return self.measured / self.baseline

    @property
    def goal(self) -> str:
        """The goal in words; empty if there is none."""
        goals = [("ratio <= ", self.most, ""), ("ratio >= ", self.least, ""), ("<= ", self.limit, f" {self.unit}")]
        return ", ".join(f"{sign}{bound}{unit}" for sign, bound, unit in goals if bound is not None)

    @property
    def kept(self) -> bool:
        """True if the goal is met."""
        return (
            (self.most is None or self.ratio <= self.most)
            and (self.least is None or self.ratio >= self.least)
            and (self.limit is None or self.measured <= self.limit)
        )


def report(claims: Sequence[Claim], *, check: bool) -> int:
    """Print claims as a table; returns the exit status: 1 if `check` is true and a goal is missed."""
    header = ("", "measured", "baseline", "unit", "ratio", "goal", "")
    rows = [header, *(_row(claim) for claim in claims)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(w) if 1 <= i <= 4 and i != 3 else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())
    return int(check and not all(claim.kept for claim in claims))


def _row(claim: Claim) -> tuple[str, ...]:
    verdict = "" if not claim.goal else "kept" if claim.kept else "MISSED"
    measured, baseline = f"{claim.measured:,.3f}", f"{claim.baseline:,.3f}"
    return claim.what, measured, baseline, claim.unit, f"{claim.ratio:.2f}", claim.goal, verdict
