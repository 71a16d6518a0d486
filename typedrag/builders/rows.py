"""What builders have in common: rows, what was left out, and how questions are dealt out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typedrag.datasets.dataset import hash_of
from typedrag.errors import StepFailed
from typedrag.files.text_files import write_json_lines
from typedrag.lms.asking_each import Failed

Row = dict[str, Any]
"""Plain JSON values."""


@dataclass
class Built:
    """What a builder made.

    Attributes:
        rows: In an order that the same input gives again.
        left_out: How many were left out, by the reason.
    """

    rows: list[Row] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def write_built(built: Built, path: Path) -> None:
    """Write the rows as JSONL, whole or not at all."""
    write_json_lines(path, built.rows)


def why(failure: Failed, unreadable: str = "no reply could be read") -> str:
    """Why what an LM was asked for is left out: what its server says, or that the reply is `unreadable`."""
    return unreadable if isinstance(failure, StepFailed) else failure.problem


def share_of(text: str, seed: int) -> float:
    """A number from 0 to 1 that a text has on every machine, evenly spread.

    Example:
        >>> round(share_of("bread", 0), 3)
        0.787
    """
    return int(hash_of(text, seed)[:13], 16) / 16**13


def part_by_hash(text: str, seed: int, *, validation: float, test: float) -> str:
    """train, validation or test, the latter two with these shares; a text has the same in every build."""
    share = share_of(text, seed)
    if share < test:
        return "test"
    return "validation" if share < test + validation else "train"


def counted(rows: Sequence[Mapping[str, Any]], *fields: str) -> dict[str, int]:
    """How many rows have which values in these fields, as `value/value`.

    Example:
        >>> counted([{"role": "router", "part": "test"}, {"role": "router", "part": "test"}], "role", "part")
        {'router/test': 2}
    """
    counts = Counter("/".join(str(row.get(f, "")) for f in fields) for row in rows)
    return dict(sorted(counts.items()))
