"""Asking a judge about many things at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import dspy

from typedrag.lms.asking_each import Failed, ask_each
from typedrag.lms.lm import use_lm
from typedrag.lms.spending import Account, Spending, charging, metered
from typedrag.lms.trail import Stopwatch

T = TypeVar("T")
R = TypeVar("R")

Stage = Callable[[str, int], AbstractContextManager[Callable[[int], Any]]]
"""Is told what is judged now and of how many things, and gives what is told how many are done."""


def unseen(what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """The stage that shows nothing."""
    return nullcontext(lambda done: None)


@dataclass(frozen=True)
class JudgedBatch(Generic[T, R]):
    """What was asked about many things, and what it took.

    Attributes:
        judgments: Each with what it is about, in the order of those; without those that failed.
        failures: Why there is no judgment, with what it would have been about.
        spent: LM calls and tokens. What was found in a store of judgments costs nothing.
        seconds: Wall time of the whole.
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
    stage: Stage = unseen,
    name: str = "judgments",
) -> JudgedBatch[T, R]:
    """Ask about each of the items, in threads.

    Args:
        judge: Asks about one. What it raises as `StepFailed` is a failure of this one alone, and so is `CallFailed`
            where the LM goes on to answer others.
        items: In any number.
        scorer: The LM that the judge asks, which is metered; None if it asks none.
        threads: Items under way at once.
        stage: Shows progress on `name`.

    Raises:
        LMUnavailable: If the LM cannot be used. Items that have not begun are not asked about.
    """
    watch, account = Stopwatch(), Account()
    lm: Any = use_lm(metered(scorer)) if scorer else nullcontext()
    with stage(name, len(items)) as show, lm, dspy.context(trace=None), charging(account):
        results = list(zip(items, ask_each(judge, items, threads, show), strict=True))
    return JudgedBatch(
        judgments=tuple((item, said) for item, said in results if not isinstance(said, Failed)),
        failures=tuple((item, str(said)) for item, said in results if isinstance(said, Failed)),
        spent=account.spent,
        seconds=watch.seconds,
    )
