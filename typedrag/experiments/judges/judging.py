"""Ask a judge about many things at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import dspy

from typedrag.lms.cost import CostTracker, Spending, track_calls, track_cost
from typedrag.lms.lm import use_lm
from typedrag.lms.trace import Stopwatch
from typedrag.runs.work import Failed, Listener, Stages, ignore_progress

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class JudgedBatch(Generic[T, R]):
    """The judgments of many items, and their cost.

    Attributes:
        judgments: Items with their judgments, in order, without those that failed.
        failures: Items without a judgment, with the reason.
        spent: LM calls and tokens; kept ones cost nothing.
        seconds: Wall time of the whole batch.
    """

    judgments: tuple[tuple[T, R], ...] = ()
    failures: tuple[tuple[T, str], ...] = ()
    spent: Spending = field(default_factory=Spending)
    seconds: float = 0.0


def judge_each(
    judge: Callable[[T], R],
    items: Sequence[T],
    *,
    scorer: dspy.LM | None,
    threads: int = 16,
    listener: Listener = ignore_progress,
    name: str = "judgments",
) -> JudgedBatch[T, R]:
    """Ask a judge about each of the items, in threads.

    Args:
        judge: Judges an item. A `StepFailed` fails this item alone, and so does a `CallFailed` if the LM goes on
            to answer others.
        items: The items.
        scorer: The LM that the judge asks; its calls are charged. None if the judge asks no LM.
        threads: Items under way at once.
        listener: Hears of the progress of the stage `name`.
    """
    watch = Stopwatch()
    lm: Any = use_lm(track_calls(scorer)) if scorer else nullcontext()
    with lm, dspy.context(trace=None), track_cost(CostTracker()) as account:
        results = list(zip(items, Stages(threads, listener=listener).run(name, judge, items), strict=True))
    return JudgedBatch(
        judgments=tuple((item, result) for item, result in results if not isinstance(result, Failed)),
        failures=tuple((item, str(result)) for item, result in results if isinstance(result, Failed)),
        spent=account.spent,
        seconds=watch.seconds,
    )
