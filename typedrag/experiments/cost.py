"""The cost of runs, and what planned ones will cost, estimated from three questions."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from typedrag.core.errors import InputError
from typedrag.core.records import Usage
from typedrag.experiments.config import SpendingCaps
from typedrag.experiments.results import AGAIN, ANSWERS, SpendingRecords, read_records
from typedrag.files.text_files import Journal
from typedrag.lms.cost import LEDGER, Price, Spending, format_dollars
from typedrag.runs.folder import FILE

SPENT = "spent"
SUFFIX = ".run"
JUDGMENTS, CANDIDATES = "judgments", "candidates"
_HEAD = 2  # the lines of a file that are looked at: the first may be of a question that was refused


@dataclass(frozen=True)
class RunSpending:
    """The spending in the folder of an evaluation or of a compile's target, or on a file of answers, by purpose:
    `answers`, `judgments`, answers `made again`, `candidates` of a compile, whose number of questions is None."""

    path: Path
    questions: int | None
    roles: dict[str, Spending]

    @property
    def spent(self) -> Spending:
        return sum(self.roles.values(), Spending())

    def to_dict(self) -> dict[str, Any]:
        """The spending as JSON values; `cost` is None if the price of no call is known."""
        roles = {role: spending_fields(spent) for role, spent in self.roles.items()}
        return {"run": str(self.path), "questions": self.questions, **spending_fields(self.spent), "roles": roles}


def spending_fields(spent: Spending) -> dict[str, Any]:
    return {**spent.to_dict(), "cost": spent.cost}


def read_costs(paths: Iterable[Path], price: Price | None = None) -> list[RunSpending]:
    """The costs of all runs at or below these paths, each once."""
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
        answers = file.parent.with_name(file.parent.name.removesuffix(SUFFIX))
        return not answers.is_file()  # the lines of a finished file of answers tell it themselves
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
    def sums(records: SpendingRecords) -> dict[str, Spending]:
        roles: dict[str, Spending] = {}
        for role, spent in records:
            roles[role] = roles.get(role, Spending()) + (spent.priced(price) if price else spent)
        return roles

    if file.name == FILE:
        _, records = read_records(file.parent)
        roles = [(role if role in (ANSWERS, AGAIN) else JUDGMENTS, spent) for role, spent in records]
        return RunSpending(file.parent, sum(role == ANSWERS for role, _ in records), sums(roles))
    if file.name == LEDGER:
        calls = [(CANDIDATES, Spending.from_dict(line)) for line in Journal(file)]
        return RunSpending(file.parent, None, sums(calls))
    answers = list(_lines(file))
    records = []
    for line in filter(_tells_spending, answers):
        usage = Usage(**line.get("usage", {}))
        spent = Spending.from_dict(line[SPENT]) if SPENT in line else Spending(usage, unpriced=usage.lm_calls)
        records.append((ANSWERS, spent))
    return RunSpending(file, len(answers), sums(records))


SAMPLE = 3  # the questions that an estimate needs
# the settings that an earlier run must share
_SAME = ("program", "options", "lm", "lm settings", "reranker", "retriever")


def estimate_cost(records: Iterable[tuple[str, Spending]], planned: float) -> Spending:
    """The cost of `planned` questions (or runs), if each costs the mean of the records of its role.

    Example:
        >>> from typedrag.core.records import Usage
        >>> records = [("answers", Spending(Usage(n, 100 * n))) for n in (1, 2, 3)] + [("f1", Spending(Usage(1, 50)))]
        >>> estimate_cost(records, 30).usage.in_words()
        '90 LM calls, 7,500 + 0 tokens'
    """
    by_role: dict[str, list[Spending]] = {}
    for role, spent in records:
        if role != AGAIN:
            by_role.setdefault(role, []).append(spent)
    each = (sum(spent, Spending()).times(planned / len(spent)) for spent in by_role.values())
    return sum(each, Spending())


def in_words(total: Spending, count: int, unit: str = "question") -> str:
    calls = total.usage.lm_calls / count
    price, dollars = (
        ("", "") if total.cost is None else (format_dollars(total.cost / count), format_dollars(total.cost))
    )
    one = ", ".join(filter(None, [f"{calls:,.1f} LM calls", f"{total.tokens / count:,.0f} tokens", price]))
    whole = ", ".join(filter(None, [f"{total.usage.lm_calls:,} LM calls", f"{total.tokens:,} tokens", dollars]))
    return f"about {one} a {unit}; {whole} for all {count:,}"


class Estimator:
    """Reports once what a run will spend, and whether its caps allow it."""

    def __init__(
        self, planned: int, caps: SpendingCaps, report: Callable[[str], None], before: Spending | None = None
    ) -> None:
        self._planned, self._caps, self._report = planned, caps, report
        self._before = before or Spending()
        self._reported = planned <= 2 * SAMPLE

    def update(self, done: float, records: Callable[[], SpendingRecords]) -> None:
        """Report the estimate once enough questions are done; `records` returns what was spent on them."""
        if not self._reported and done >= SAMPLE:
            self._reported = True
            self.report(records(), f"after {int(done):,} of {self._planned:,} questions")

    def report(self, records: SpendingRecords, source: str) -> None:
        """Report the estimate from these records, and warn if the caps are too low for it."""
        total = estimate_cost(records, self._planned)
        self._report(f"{source}: {in_words(total, self._planned)}")
        if caps := self._caps.exceeded_caps(self._before + total):
            self._report(f"that is more than the {caps} allowed: it will be stopped before its end")


def find_earlier_run(folder: Path, settings: Mapping[str, Any]) -> tuple[Path, SpendingRecords] | None:
    """The folder and the spending of the newest run beside a folder with the same program, LM and metrics that has paid
    for calls; None if there is none."""
    files = folder.parent.glob(f"*/{FILE}")
    for file in sorted(files, key=lambda f: f.stat().st_mtime, reverse=True):
        try:
            before, records = read_records(file.parent)
        except InputError:  # of another version
            continue
        metrics = {name for name in (*before, *settings) if name.startswith("metric ")}
        same = all(before.get(name) == settings.get(name) for name in (*_SAME, *metrics))
        if same and sum(role == ANSWERS for role, _ in records) >= SAMPLE and any(s.tokens for _, s in records):
            return file.parent, records
    return None
