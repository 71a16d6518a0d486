"""The tables of a page of Markdown, and the numbers in them: what a chart or a shorter table is made of."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from typedrag.core.records import Estimate

_NUMBER = r"[+\-−]?\d[\d,]*(?:\.\d+)?"
_ESTIMATE = re.compile(rf"({_NUMBER})\s\[({_NUMBER}),\s({_NUMBER})\]")
_CELLS = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        headings: Those that it stands under, outermost first.
        header: The names of its columns.
        rows: Its cells, as written.
    """

    headings: tuple[str, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def row(self, *labels: str) -> tuple[str, ...]:
        """The first row whose first cells are these; a `KeyError` if there is none."""
        for row in self.rows:
            if row[: len(labels)] == labels:
                return row
        raise KeyError(labels)

    def cell(self, column: str, *labels: str) -> str:
        """The cell in a column of the first row whose first cells are the labels."""
        return self.row(*labels)[self.header.index(column)]

    def estimate(self, column: str, *labels: str) -> Estimate:
        """The number and the interval of a cell."""
        return estimate(self.cell(column, *labels))


def read_tables(page: str) -> list[Table]:
    """The tables of a page, in order."""
    tables, headings = [], [""] * 6
    lines = page.splitlines()
    for at, line in enumerate(lines):
        if heading := re.match(r"(#+) (.+)", line):
            level = len(heading[1])
            headings[level - 1 :] = [heading[2], *[""] * (6 - level)]
        if line.startswith("|") and not (at and lines[at - 1].startswith("|")):
            header, _, *rows = _block(lines[at:])
            tables.append(Table(tuple(h for h in headings if h), header, tuple(rows)))
    return tables


def table_of(page: str, heading: str, column: str = "") -> Table:
    """The first table under a heading that has a column; a `KeyError` if there is none."""
    for table in read_tables(page):
        if heading in table.headings and (not column or column in table.header):
            return table
    raise KeyError((heading, column))


def estimate(text: str) -> Estimate:
    """The first number with an interval that a text holds; a `ValueError` if it holds none. Its n is not told: 0.

    Example:
        >>> print(estimate("+1,652 [+1,220, +2,103] **worse**"))
        1652.000 [1220.000, 2103.000]
    """
    numbers = _ESTIMATE.search(text)
    if numbers is None:
        raise ValueError(f"no number with an interval: {text!r}")
    value, low, high = (float(n.replace(",", "").replace("−", "-")) for n in numbers.groups())
    return Estimate(value, low, high, n=0)


def _block(lines: list[str]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        if not line.startswith("|"):
            return
        yield tuple(cell.strip().replace(r"\|", "|") for cell in _CELLS.split(line.strip())[1:-1])
