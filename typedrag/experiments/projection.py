"""Projects what a run will spend, from its own first questions or from an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from typedrag.errors import InputError
from typedrag.experiments.evaluate.config import SpendingCaps
from typedrag.experiments.evaluate.run_store import AGAIN, ANSWERS, SpendingRecords, read_records
from typedrag.lms.spending import Spending, in_dollars
from typedrag.runs.folder import FILE

ENOUGH = 5
"""The number of questions that a projection needs."""
_SAME = ("program", "options", "lm", "lm settings", "reranker", "retriever")
"""The settings that an earlier run must share to project this one."""


class Projection:
    """Tells once what a run will spend, and whether its caps allow it.

    Args:
        planned: The number of questions of the run.
        caps: The limits of the run's spending.
        say: The function that prints a message.
        before: The spending before this run that counts against the caps.
    """

    def __init__(
        self, planned: int, caps: SpendingCaps, say: Callable[[str], None], before: Spending | None = None
    ) -> None:
        self._planned, self._caps, self._say = planned, caps, say
        self._before = before or Spending()
        self._told = planned <= 2 * ENOUGH

    def watch(self, done: float, records: Callable[[], SpendingRecords]) -> None:
        """Print the projection once enough questions are done; `records` gives what was spent on them."""
        if not self._told and done >= ENOUGH:
            self._told = True
            self.tell(records(), f"after {int(done):,} of {self._planned:,} questions")

    def tell(self, records: SpendingRecords, source: str) -> None:
        """Print the projection from these records of spending, and a warning if the caps are too low."""
        total = projected(records, self._planned)
        self._say(f"{source}: {in_words(total, self._planned)}")
        if caps := self._caps.too_low_for(self._before + total):
            self._say(f"that is more than the {caps} allowed: it will be stopped before its end")


def projected(records: Iterable[tuple[str, Spending]], questions: int) -> Spending:
    """The spending on a number of questions, if each answer and judgment costs the mean of the records.

    Example:
        >>> from typedrag.records import Usage
        >>> records = [("answers", Spending(Usage(n, 100 * n))) for n in (1, 2, 3)] + [("f1", Spending(Usage(1, 50)))]
        >>> projected(records, 30).usage.in_words()
        '90 LM calls, 7,500 + 0 tokens'
    """
    by_role: dict[str, list[Spending]] = {}
    for role, spent in records:
        if role != AGAIN:
            by_role.setdefault(role, []).append(spent)
    each = (sum(spent, Spending()).times(questions / len(spent)) for spent in by_role.values())
    return sum(each, Spending())


def in_words(total: Spending, count: int, unit: str = "question") -> str:
    """A projection in words, for one question and for all."""
    calls = total.usage.lm_calls / count
    price, dollars = ("", "") if total.cost is None else (in_dollars(total.cost / count), in_dollars(total.cost))
    one = ", ".join(filter(None, [f"{calls:,.1f} LM calls", f"{total.tokens / count:,.0f} tokens", price]))
    whole = ", ".join(filter(None, [f"{total.usage.lm_calls:,} LM calls", f"{total.tokens:,} tokens", dollars]))
    return f"about {one} a {unit}; {whole} for all {count:,}"


class EarlierRun(NamedTuple):
    """An earlier run, from which another is projected."""

    folder: Path
    records: SpendingRecords


def earlier_run(folder: Path, settings: Mapping[str, Any]) -> EarlierRun | None:
    """The newest run beside a folder with the same program, LM and metrics that has paid for calls; None if none."""
    files = folder.parent.glob(f"*/{FILE}")
    for file in sorted(files, key=lambda f: f.stat().st_mtime, reverse=True):
        try:
            before, records = read_records(file.parent)
        except InputError:  # of another version
            continue
        metrics = {name for name in (*before, *settings) if name.startswith("metric ")}
        same = all(before.get(name) == settings.get(name) for name in (*_SAME, *metrics))
        if same and sum(role == ANSWERS for role, _ in records) >= ENOUGH and any(s.tokens for _, s in records):
            return EarlierRun(file.parent, records)
    return None
