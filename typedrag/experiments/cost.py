"""The spending of runs: evaluations, the trials of sweeps, compiles, and files of answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from typedrag.core.errors import InputError
from typedrag.core.records import Usage
from typedrag.experiments.evaluate.batch import SPENT, answers_of, spent_of_line
from typedrag.experiments.evaluate.run_store import AGAIN, ANSWERS, SpendingRecords, read_records
from typedrag.files.text_files import Journal
from typedrag.lms.cost import LEDGER, Price, Spending
from typedrag.runs.folder import FILE

JUDGMENTS, CANDIDATES = "judgments", "candidates"
_HEAD = 2
"""The lines of a file that are looked at for spending: the first may be of a question that was refused."""


@dataclass(frozen=True)
class RunSpending:
    """The spending of a run.

    Attributes:
        path: The folder of an evaluation or of a compile's target, or a file of answers.
        questions: The number of questions that were answered or failed; None for a compile.
        roles: The spending by purpose: `answers`, `judgments`, answers `made again`, `candidates` of a compile.
    """

    path: Path
    questions: int | None
    roles: dict[str, Spending]

    @property
    def spent(self) -> Spending:
        """The spending on all purposes together."""
        return sum(self.roles.values(), Spending())

    def to_dict(self) -> dict[str, Any]:
        """The spending as JSON values; `cost` is None if the price of no call is known."""
        roles = {role: json_of(spent) for role, spent in self.roles.items()}
        return {"run": str(self.path), "questions": self.questions, **json_of(self.spent), "roles": roles}


def json_of(spent: Spending) -> dict[str, Any]:
    """A spending as JSON values."""
    return {**spent.to_dict(), "cost": spent.cost}


def costs_of(paths: Iterable[Path], price: Price | None = None) -> list[RunSpending]:
    """The costs of all runs at or below these paths, each once.

    Args:
        paths: The folders of runs, folders that contain such, or files of answers.
        price: The price of calls whose price was unknown when they were made.
    """
    costs: dict[Path, RunSpending] = {}
    for path in paths:
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if _is_spending(file))
        if not path.exists() or not (files and all(map(_is_spending, files))):
            raise InputError(
                f"{path} holds no run that tells what was spent",
                "Name the --out of typedrag evaluate, compile, sweep or ask --file, or a folder of such",
            )
        for file in files:
            costs.setdefault(file.resolve(), _cost_of(file, price))
    return [cost for cost in costs.values() if cost.roles]  # else it has asked nothing, such as a training


def _is_spending(file: Path) -> bool:
    if not file.is_file():
        return False
    if file.name == FILE:
        return not answers_of(file.parent).is_file()  # the lines of a finished file of answers tell it themselves
    return file.name == LEDGER or (file.suffix == ".jsonl" and any(map(_tells_spending, _lines(file, _HEAD))))


def _tells_spending(line: Mapping[str, Any]) -> bool:
    """True if a line has the fields that `Outcome.to_dict` writes: other programs write a `usage` of other fields."""
    fields = line.get(SPENT, line.get("usage"))
    known = (Spending().to_dict() if SPENT in line else asdict(Usage())).keys()
    return isinstance(fields, dict) and known - {"uncounted"} <= fields.keys() <= known


def _lines(file: Path, most: int | None = None) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines, up to the first line that holds no object."""
    with file.open("rb") as lines:
        for line in islice(lines, most):
            try:
                yield dict(json.loads(line))
            except (ValueError, TypeError):
                return


def _cost_of(file: Path, price: Price | None) -> RunSpending:
    if file.name == FILE:
        _, records = read_records(file.parent)
        roles = [(role if role in (ANSWERS, AGAIN) else JUDGMENTS, spent) for role, spent in records]
        return RunSpending(file.parent, sum(role == ANSWERS for role, _ in records), _sums(roles, price))
    if file.name == LEDGER:
        calls = [(CANDIDATES, Spending.from_dict(line)) for line in Journal(file)]
        return RunSpending(file.parent, None, _sums(calls, price))
    answers = list(_lines(file))
    spent = [(ANSWERS, spent_of_line(line)) for line in answers if _tells_spending(line)]
    return RunSpending(file, len(answers), _sums(spent, price))


def _sums(records: SpendingRecords, price: Price | None) -> dict[str, Spending]:
    roles: dict[str, Spending] = {}
    for role, spent in records:
        roles[role] = roles.get(role, Spending()) + (spent.priced(price) if price else spent)
    return roles
