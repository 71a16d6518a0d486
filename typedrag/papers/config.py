"""The file of a paper's table: which experiments make it, where each cell is found in them, and what was published."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from typedrag.core.errors import InputError, names_hint
from typedrag.experiments.config import CLOSED, LMConfig, distinct, named
from typedrag.experiments.config_file import mark_variables, read_yaml, validate_settings

FOLDER = Path("configs/papers")  # of the tables, in a checkout
Kind = Literal["evaluation", "rankers", "dataset"]
OUT = Path("papers")  # the folder of what is made, by default
KINDS: tuple[Kind, ...] = ("evaluation", "rankers", "dataset")


class CellRef(BaseModel):
    """The place of a value in the experiments: what a column says goes before what its row says."""

    model_config = CLOSED

    variant: str | None = None
    """The experiment among `variants`."""
    run: str | None = None
    """The name of the program, or of the ranker."""
    measure: str | None = None
    """`METRIC/MEASURE`, also one over all answers; `cost/tokens`, …; `route/accuracy`, the share of answers whose route
    is the question's subset; `win-rate` over the run `against`. Of rankers `ndcg`, `map`, `ncom` or `seconds`; of a
    dataset `questions`, or the mean words of a field such as `question_words`, or its length, such as
    `aspects_count`."""
    against: str | None = None
    """The run that a win rate is against."""
    subset: str | None = None
    """Only questions of this subset."""
    type: str | None = None
    """Only questions of this type."""
    aspects: tuple[NonNegativeInt, NonNegativeInt | None] | None = None
    """Only questions with so many sub-aspects in the dataset: the least and the greatest number, or null for no end."""
    part: str | None = None
    """The split of a dataset whose questions are counted."""
    k: PositiveInt | None = None
    """The cutoff of a ranker's measure; by default 10."""
    scale: float | None = None
    """What the value is multiplied by, such as 100 for percent; by default 1."""
    lacks: str | None = None
    """Why the value cannot be made; the cell then shows only what was published."""

    def under(self, column: CellRef) -> CellRef:
        """The place of a cell in this row and a column.

        Example:
            >>> CellRef(run="rag", measure="f1/f1").under(CellRef(variant="squad", scale=100)).run
            'rag'
        """
        return CellRef(
            **{n: v for w in (self, column) for n in CellRef.model_fields if (v := getattr(w, n)) is not None}
        )


class Column(CellRef):
    """A column of a table."""

    name: str
    """Its heading."""


class Row(CellRef):
    """A row of a table."""

    name: str
    """What stands before it."""
    published: tuple[float | None, ...] = ()
    """What the paper gives, in the order of the columns; null for a cell that it leaves empty. Nothing if it only draws
    the values."""


_DISTINCT = distinct("two have the same name")


class RankerConfig(BaseModel):
    """A ranker. Its spec alone is enough."""

    model_config = CLOSED

    ranker: str
    """Its spec, as for `--reranker`."""
    pools: Path | None = None
    """Pools of its own, since what it ranks was searched for in another way."""
    candidates: PositiveInt | None = None
    """The first passages of a pool, which alone it ranks."""
    length: PositiveInt | None = None
    """The passages that it ranks at the top; by default all."""

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        return {"ranker": value} if isinstance(value, str) else value


class RankersConfig(BaseModel):
    """Rankers that are measured on pools."""

    model_config = CLOSED

    pools: Path
    """The pools, see `typedrag research ranker pools`."""
    rankers: dict[str, RankerConfig]
    """The rankers, by the names of their rows."""
    lm: LMConfig = LMConfig()
    """The LM of those that ask one."""
    limit: PositiveInt | None = None
    """Only the first pools."""


class TableConfig(BaseModel):
    """A table or figure of a paper."""

    model_config = CLOSED

    title: str
    """The paper, the number and what it shows."""
    needs: dict[str, str] = Field(default_factory=dict)
    """What the environment variables of the paper's tables stand for."""
    shares: str = ""
    """The table of the same paper whose experiments these are, so that they are made once."""
    questions: dict[str, PositiveInt] = Field(default_factory=dict)
    """How many questions the paper asked, by variant, or `all` for each: what is spent is estimated by it."""
    evaluation: dict[str, Any] | None = None
    """Settings of `typedrag evaluate`."""
    rankers: dict[str, Any] | None = None
    """Settings of `RankersConfig`."""
    dataset: dict[str, Any] | None = None
    """Settings of a dataset whose questions are counted."""
    variants: dict[str, dict[str, Any]] = {"": {}}
    """The experiments: settings that are laid over those above."""
    columns: Annotated[tuple[Annotated[Column, BeforeValidator(named)], ...], Field(min_length=1), _DISTINCT]
    """The columns."""
    rows: Annotated[tuple[Row, ...], Field(min_length=1), _DISTINCT]
    """The rows."""
    plain_judge: bool = False
    """Whether the judge of win rates gets no more than in its paper, and calls no tie."""
    ranking: bool = False
    """Whether a last column ranks the others by their values, the greatest first."""
    differs: tuple[str, ...] = ()
    """What is not as in the paper."""

    @property
    def kind(self) -> Kind:
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    def cell(self, row: Row, column: Column) -> CellRef:
        """The place of a cell; its variant is the only one if none is named."""
        where = row.under(column)
        return where if where.variant else where.model_copy(update={"variant": next(iter(self.variants))})

    def question_count(self, variant: str, limit: int | None) -> int | None:
        """The questions that a variant asks, by the paper's number and a limit; None if that is not known."""
        count = self.questions.get(variant, self.questions.get("all"))
        return min(filter(None, (count, limit)), default=None)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if sum(getattr(self, kind) is not None for kind in KINDS) != 1:
            raise ValueError(f"it has not one of {', '.join(KINDS)}")
        for row in self.rows:
            if row.published and (known := len(row.published)) != len(self.columns):
                raise ValueError(f"row '{row.name}' has {known} published values for {len(self.columns)} columns")
            for column in self.columns:
                where = self.cell(row, column)
                if where.variant not in self.variants:
                    raise ValueError(f"row '{row.name}', column '{column.name}': there is no variant '{where.variant}'")
                if not (where.lacks or where.measure):
                    raise ValueError(f"row '{row.name}', column '{column.name}': no measure is named")
        return self


class PaperTable:
    """A table's file, and its settings: with the variables that they ask for as `values`, checked as `config`.

    Its name is as `typed-rag/table-3`.
    """

    def __init__(self, name: str, file: Path) -> None:
        self.name, self.file = name, file
        values = read_yaml(file)
        self.values = mark_variables(values)
        self.config = validate_settings(TableConfig, "papers", values, file, hint="See configs/papers/README.md")

    @property
    def folder(self) -> Path:
        """The folder of its experiments by default: its own, or that of the table whose experiments these are."""
        place = OUT / self.name
        return place.with_name(self.config.shares) if self.config.shares else place


def lm_spec(lm: Mapping[str, Any] | None) -> str:
    """The spec of an LM in an experiment's settings, with the variables that are set; empty if it names none."""
    return Template(str((lm or {}).get("spec") or "")).safe_substitute(os.environ)


def find_tables(folder: Path = FOLDER) -> list[PaperTable]:
    """All tables below a folder, by paper and number."""
    files = sorted(folder.glob("*/*.yaml"), key=_order)
    tables = [PaperTable(_name(folder, file), file) for file in files if file.stem.startswith(("table-", "figure-"))]
    if not tables:
        raise InputError(
            f"{folder} holds no table of a paper", "Run it where the repository is checked out, or name its --folder"
        )
    return tables


def find_table(name: str, folder: Path = FOLDER) -> PaperTable:
    """The table of a name, such as `typed-rag/table-3`, or of a file of one's own."""
    file = Path(name) if name.endswith(".yaml") else folder / f"{name}.yaml"
    if not file.is_file():
        known = [_name(folder, other) for other in sorted(folder.glob("*/[tf]*-*.yaml"), key=_order)]
        raise InputError(
            f"there is no table '{name}' in {folder}",
            names_hint("There are", name, known) if known else "Name the --folder of a checkout's configs/papers",
        )
    return PaperTable(file.stem if name.endswith(".yaml") else name, file)


def _name(folder: Path, file: Path) -> str:
    return file.relative_to(folder).with_suffix("").as_posix()


def _order(file: Path) -> tuple[str, str, int, str]:
    kind, _, number = file.stem.partition("-")
    return file.parent.name, {"table": "1"}.get(kind, "2"), int(number) if number.isdecimal() else 99, number
