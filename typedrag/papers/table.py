"""A table that was made: each cell beside the published one, as a page and as JSON."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from typedrag import __version__
from typedrag.core.records import Estimate
from typedrag.core.redaction import without_keys
from typedrag.experiments.formats import format_estimate, format_value, markdown_table
from typedrag.files.text_files import write_json, write_text
from typedrag.lms.cost import Spending
from typedrag.papers.config import PaperTable, lm_spec
from typedrag.papers.experiments import Results, required_variables

_SHOWN = 3  # the most places that are named for a reason


@dataclass(frozen=True)
class Cell:
    """A cell of a table: the value that was made here, with its 95 % interval, or what it lacks; and the paper's."""

    row: str
    column: str
    ours: Estimate | None
    published: float | None
    lacks: str = ""

    def __str__(self) -> str:
        """Both values.

        Example:
            >>> str(Cell("RAG", "MRR", Estimate(0.5, 0.4, 0.6, 40), 0.5294)), str(Cell("BGM", "F1", None, 0.3, "gone"))
            ('0.500 [0.400, 0.600] / 0.529', '- / 0.300')
            >>> str(Cell("Debate", "NQ-NF", Estimate(1, 1, 1, 1), 1))
            '1 / 1'
        """
        certain = self.ours and self.ours.interval == (self.ours.value, self.ours.value)
        ours = _number(self.ours.value) if self.ours and certain else format_estimate(self.ours)
        return f"{ours} / {_number(self.published)}"


@dataclass(frozen=True)
class MadeTable:
    """A table that was made, with its cells by row and column, what its last making has spent, by variant what each
    experiment was made with (the number of questions, the LMs and the dataset), and the environment variables that they
    asked for."""

    table: PaperTable
    cells: tuple[tuple[Cell, ...], ...]
    spent: Spending
    experiments: Mapping[str, Mapping[str, Any]]
    variables: Mapping[str, str]

    @property
    def made(self) -> int:
        return sum(cell.ours is not None for row in self.cells for cell in row)

    @property
    def reasons(self) -> dict[str, list[str]]:
        """The rows and columns of cells without a value of ours, by the reason."""
        reasons: dict[str, list[str]] = {}
        for row in self.cells:
            for cell in row:
                if cell.lacks:
                    reasons.setdefault(cell.lacks, []).append(f"{cell.row}, {cell.column}")
        return reasons

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON values."""
        return {
            "table": self.table.name,
            "title": self.table.config.title,
            "experiments": {variant: dict(used) for variant, used in self.experiments.items()},
            "variables": dict(self.variables),
            "cells": [asdict(cell) for row in self.cells for cell in row],
            "differs": list(self.table.config.differs),
            "spent": {**self.spent.to_dict(), "cost": self.spent.cost},
            "typedrag": __version__,
        }

    def lines(self) -> Iterator[str]:
        """Yield the table as lines of Markdown: in each cell our value with its interval, then the published one."""
        config = self.table.config
        yield f"# {config.title}"
        yield ""
        yield "Ours with its 95 % interval over questions / as published."
        yield ""
        yield from markdown_table(
            ("", *(column.name for column in config.columns), *(["Ranking"] if config.ranking else [])),
            [(row[0].row, *map(str, row), *([_ranking(row)] if config.ranking else [])) for row in self.cells],
        )
        yield "Made with:"
        yield ""
        for variant, used in self.experiments.items():
            values = ", ".join(f"{name} {value}" for name, value in used.items())
            yield f"- {variant}: {values}" if variant else f"- {values}"
        yield from (f"- {name}: `{value}`" for name, value in self.variables.items())
        yield ""
        if reasons := self.reasons:
            yield "Without a value of ours:"
            yield ""
            for reason, places in reasons.items():
                more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
                yield f"- {'; '.join(places[:_SHOWN])}{more}: {reason}"
            yield ""
        if config.differs:
            yield "Not as in the paper:"
            yield ""
            yield from (f"- {line}" for line in config.differs)
            yield ""
        yield f"When it was last made, this took {self.spent.usage.in_words()}; typedrag {__version__}."

    def write(self, folder: Path) -> Path:
        """Write the page and the JSON into a folder, each by the table's name; gives the page."""
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / f"{Path(self.table.name).name}.md"
        write_text(page, "\n".join(self.lines()) + "\n")
        write_json(page.with_suffix(".json"), self.to_dict())
        return page


def fill_table(
    table: PaperTable,
    experiments: Mapping[str, Mapping[str, Any]],
    results: Mapping[str, Results],
    spent: Spending,
) -> MadeTable:
    """The table with the values that the experiments' results give its cells."""
    config = table.config
    cells = []
    for row in config.rows:
        published = row.published or (None,) * len(config.columns)
        pairs = zip(config.columns, published, strict=True)
        cells.append(tuple(_cell(table, row, column, value, results) for column, value in pairs))
    used = {}
    for variant, settings in experiments.items():
        lms = {role: without_keys(lm_spec(settings.get(key))) for role, key in (("LM", "lm"), ("scorer", "scorer"))}
        values = {"n": results[variant].n, **lms, "dataset": (settings.get("dataset") or settings).get("name")}
        used[variant] = {name: value for name, value in values.items() if value is not None and value != ""}
    variables = {name: without_keys(os.environ[name]) for name in required_variables(experiments)}
    return MadeTable(table, tuple(cells), spent, used, variables)


def _cell(table: PaperTable, row: Any, column: Any, published: float | None, results: Mapping[str, Results]) -> Cell:
    where = table.config.cell(row, column)
    if where.lacks:
        return Cell(row.name, column.name, None, published, where.lacks)
    if where.variant is None or where.variant not in results:
        return Cell(row.name, column.name, None, published, f"variant '{where.variant}' was left out")
    value = results[where.variant].value(where)
    if isinstance(value, str):
        return Cell(row.name, column.name, None, published, value)
    scale = where.scale or 1.0
    low, high = (end * scale for end in value.interval) if value.interval else (None, None)
    scaled = replace(value, value=value.value * scale, low=low, high=high)
    return Cell(row.name, column.name, scaled, published)


def _ranking(row: Sequence[Cell]) -> str:
    ranked = sorted((cell for cell in row if cell.ours), key=lambda cell: -cell.ours.value if cell.ours else 0)
    values = [format_value(cell.ours.value) if cell.ours else "" for cell in ranked]
    signs = [" = " if one == other else " > " for one, other in pairwise(values)]
    return "".join(f"{cell.column}{sign}" for cell, sign in zip(ranked, [*signs, ""], strict=True)) if ranked else "-"


def _number(value: float | None) -> str:
    return format_value(value, 0 if value is not None and float(value).is_integer() else None)
