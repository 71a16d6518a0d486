"""Reasons to stop a run before its end: functions of its progress, which are asked before each step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from typedrag.lms.cost import PRICES, Spending, format_dollars

if TYPE_CHECKING:
    from typedrag.runs.store import Result

ENOUGH = 10
"""Results of a step after which the share of failures is looked at."""


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        run: Its name.
        done: The items that are done; one of whose steps some are done counts in part.
        planned: The items of the whole run.
        spent: What counts against limits: the cost of this run so far, and perhaps of others.
        tried: The number of results by step, without those that were skipped.
        failures: The number of failed ones among them.
        problems: The problem of the last failure, by step.
        result: The result that was kept just now; None at the beginning and at the end.
        calls_ahead: LM calls that are under way, or come with the next step, and are not in `spent`.
    """

    run: str = ""
    done: float = 0.0
    planned: int = 0
    spent: Spending = field(default_factory=Spending)
    tried: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    result: Result | None = None
    calls_ahead: int = 0

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


class Stopper(Protocol):
    """Tells why a run is to stop; calls under way still end."""

    def __call__(self, progress: Progress) -> str:
        """The reason in words; empty if there is none."""


@dataclass(frozen=True)
class Limits:
    """Stop at the first limit that is reached: tokens, LM calls or dollars spent, or minutes since this was made."""

    tokens: int | None = None
    lm_calls: int | None = None
    cost: float | None = None
    minutes: float | None = None
    began: float = field(default_factory=time.monotonic)

    def __call__(self, progress: Progress) -> str:
        spent, calls, passed = progress.spent, progress.spent.usage.lm_calls, (time.monotonic() - self.began) / 60
        if self.tokens is not None:
            if spent.tokens >= self.tokens:
                return f"{spent.tokens:,} tokens are spent of the {self.tokens:,} allowed"
            if spent.usage.uncounted:
                return f"a cap of tokens cannot be kept, after {spent.usage.in_words()}"
        if self.lm_calls is not None and calls + progress.calls_ahead >= self.lm_calls:
            return f"{calls:,} LM calls are made of the {self.lm_calls:,} allowed"
        if self.cost is not None:
            if spent.dollars >= self.cost:
                return f"{format_dollars(spent.dollars)} are spent of the {format_dollars(self.cost)} allowed"
            if spent.unpriced:
                return (
                    f"a cap of cost cannot be kept, since the price of an LM in use is not known: give it in {PRICES}"
                )
        if self.minutes is not None and passed >= self.minutes:
            return f"{passed:.1f} minutes have passed of the {self.minutes:g} allowed"
        return ""


@dataclass(frozen=True)
class MaxFailures:
    """Stop where a larger share of a step's results fails, once some were tried; `names` are those of results by step,
    for the reason, by default the step's own."""

    share: float
    names: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, progress: Progress) -> str:
        for step, failed in progress.failures.items():
            if (tried := progress.tried[step]) >= ENOUGH and failed / tried > self.share:
                what, last = self.names.get(step, step), progress.problems.get(step, "")
                return f"{failed} of {tried} {what} failed, where {self.share:.0%} are allowed; the last: {last}"
        return ""


class AnyOf:
    """Stop for the first reason that there is."""

    def __init__(self, *stoppers: Stopper) -> None:
        self._stoppers = stoppers

    def __call__(self, progress: Progress) -> str:
        return next((reason for stopper in self._stoppers if (reason := stopper(progress))), "")
