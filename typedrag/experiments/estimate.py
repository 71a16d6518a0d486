"""The cost of what is planned, estimated from three questions: of this run, or of an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from typedrag.core.errors import InputError
from typedrag.experiments.evaluate.config import SpendingCaps
from typedrag.experiments.evaluate.run_store import AGAIN, ANSWERS, SpendingRecords, read_records
from typedrag.lms.cost import Spending, format_dollars
from typedrag.runs.folder import FILE

SAMPLE = 3
"""The number of questions that an estimate needs."""
_SAME = ("program", "options", "lm", "lm settings", "reranker", "retriever")
"""The settings that an earlier run must share."""


def estimate_cost(records: Iterable[tuple[str, Spending]], planned: float) -> Spending:
    """The cost of `planned` questions (or runs), if each costs the mean of the records of its role.

    Args:
        records: What was spent on each of at least `SAMPLE` questions, by role: its answer, each of its judgments.
        planned: The number of questions.

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
    """An estimate in words, for one question and for all."""
    calls = total.usage.lm_calls / count
    price, dollars = (
        ("", "") if total.cost is None else (format_dollars(total.cost / count), format_dollars(total.cost))
    )
    one = ", ".join(filter(None, [f"{calls:,.1f} LM calls", f"{total.tokens / count:,.0f} tokens", price]))
    whole = ", ".join(filter(None, [f"{total.usage.lm_calls:,} LM calls", f"{total.tokens:,} tokens", dollars]))
    return f"about {one} a {unit}; {whole} for all {count:,}"


class Estimator:
    """Reports once what a run will spend, and whether its caps allow it.

    Args:
        planned: The number of questions of the run.
        caps: The limits of the run's spending.
        report: Called with a message for the user.
        before: The spending before this run that counts against the caps.
    """

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
        if caps := self._caps.too_low_for(self._before + total):
            self._report(f"that is more than the {caps} allowed: it will be stopped before its end")


class EarlierRun(NamedTuple):
    """An earlier run, from which another is estimated."""

    folder: Path
    records: SpendingRecords


def find_earlier_run(folder: Path, settings: Mapping[str, Any]) -> EarlierRun | None:
    """The newest run beside a folder with the same program, LM and metrics that has paid for calls; None if none."""
    files = folder.parent.glob(f"*/{FILE}")
    for file in sorted(files, key=lambda f: f.stat().st_mtime, reverse=True):
        try:
            before, records = read_records(file.parent)
        except InputError:  # of another version
            continue
        metrics = {name for name in (*before, *settings) if name.startswith("metric ")}
        same = all(before.get(name) == settings.get(name) for name in (*_SAME, *metrics))
        if same and sum(role == ANSWERS for role, _ in records) >= SAMPLE and any(s.tokens for _, s in records):
            return EarlierRun(file.parent, records)
    return None
