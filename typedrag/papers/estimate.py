"""The estimate of what a table will take, from three questions of each of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typedrag.experiments.estimate import SAMPLE, estimate_cost
from typedrag.experiments.evaluate.config_file import merge_settings
from typedrag.experiments.evaluate.run_store import ANSWERS, SpendingRecords, read_records
from typedrag.lms.cost import CostTracker, Spending
from typedrag.papers.config import PaperTable, spec_of
from typedrag.papers.experiments import Hooks, make_experiment
from typedrag.runs import is_run

Experiments = Mapping[str, Mapping[str, Any]]
"""The settings of a table's experiments, by variant; see `experiments_of`."""
_SECONDS_A_CALL = 3.0
_IN_FLIGHT = 16
"""LM calls at once of a server."""
_EMBEDDED_TOKENS_A_SECOND = 80.0
"""Tokens read and written of the embedded 1.5B model on two cores, which gave 60 to 285 of them by machine."""


@dataclass(frozen=True)
class TableEstimate:
    """The estimate of what a table will take, without the comparisons of win rates.

    Attributes:
        questions: The questions, over all variants; None if their number is not known.
        spent: LM calls and tokens; `spent.cost` is None if no price is known. None if a run has not asked enough yet.
        hours: The time that its LM calls take: at 3 s each, 16 at once, or with an embedded LM at 80 tokens a second.
    """

    questions: int | None
    spent: Spending | None
    hours: float | None


def ask_samples(table: PaperTable, experiments: Experiments, out: Path, limit: int | None, hooks: Hooks) -> None:
    """Ask the first three questions of each run that has asked fewer; the table then need not ask them again.

    It raises what `make_experiment` raises.
    """
    for variant, settings, program, records in _runs(table, experiments, out):
        if len(_of_answers(records)) < (few := min(SAMPLE, limit or SAMPLE)):
            sample = {**merge_settings(settings, {"dataset": {"limit": few}}), "programs": [program]}
            make_experiment(table, variant, sample, out, CostTracker(), hooks)


def estimate_table(table: PaperTable, experiments: Experiments, out: Path, limit: int | None = None) -> TableEstimate:
    """Estimate what a table's experiments will take, by what its runs in a folder have spent so far.

    Args:
        table: The table.
        experiments: Its experiments.
        out: The folder of the table.
        limit: The most questions of each experiment.
    """
    counts = {variant: table.config.questions_of(variant, limit) for variant in experiments}
    total, seconds, known = Spending(), 0.0, None not in counts.values()
    for variant, settings, _, records in _runs(table, experiments, out):
        planned = counts[variant] or 0
        answers = _of_answers(records)
        known &= len(answers) >= min(SAMPLE, planned)
        answering = estimate_cost(answers, planned)
        judging = estimate_cost([record for record in records if record not in answers], planned)
        total += answering + judging
        seconds += _seconds(answering, settings.get("lm")) + _seconds(judging, settings.get("scorer"))
    questions = None if None in counts.values() else sum(filter(None, counts.values()))
    return TableEstimate(questions, total if known else None, seconds / 3600 if known else None)


def _runs(
    table: PaperTable, experiments: Experiments, out: Path
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any], SpendingRecords]]:
    """Yield variant, settings, program and what was spent so far of each run that asks an LM."""
    for variant, settings in experiments.items() if table.config.kind == "evaluation" else ():
        for program in settings.get("programs") or ():
            folder = out / variant / str(program.get("name", ""))
            yield variant, settings, program, read_records(folder)[1] if is_run(folder) else []


def _of_answers(records: SpendingRecords) -> SpendingRecords:
    return [record for record in records if record[0] == ANSWERS]


def _seconds(spent: Spending, lm: Mapping[str, Any] | None) -> float:
    if spec_of(lm).startswith("embedded"):
        return spent.tokens / _EMBEDDED_TOKENS_A_SECOND
    return spent.usage.lm_calls * _SECONDS_A_CALL / _IN_FLIGHT
