"""Failures of LM calls, told apart: an LM that fails at some items, and one that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from typedrag.core.errors import CallFailed

IN_A_ROW = 5
"""Consecutive items that an LM fails at before it is taken to be out of use."""
ENOUGH = 10
"""Items after which the share of failures is looked at."""


class FailureTracker:
    """Failures that are deferred until it is known whether an item or the LM caused them.

    If the LM goes on to answer other items, each is kept as its item's failure. If the LM fails at one item after the
    other, the LM is at fault, and the items are left to be tried again.

    Args:
        answered: True if the LM has already answered an item.

    Example:
        >>> kept: list[str] = []
        >>> failures = FailureTracker()
        >>> failures.defer(CallFailed("too slow"), lambda: kept.append("q1"))
        >>> failures.on_success()
        >>> kept
        ['q1']
    """

    def __init__(self, answered: bool = False) -> None:
        self._deferred: list[tuple[CallFailed, Callable[[], None]]] = []
        self._answered = answered

    def defer(self, fault: CallFailed, keep: Callable[[], None] = lambda: None) -> None:
        """Defer a failure; `keep` makes it the item's."""
        if self._deferred and self._deferred[-1][0] is fault:
            return  # each module that an error passes through defers it again
        self._deferred.append((fault, keep))

    def on_success(self) -> None:
        """Keep the deferred failures as their items': the LM has answered, so it was not to blame."""
        self._answered = True
        deferred, self._deferred = self._deferred, []
        for _, keep in deferred:
            keep()

    def __len__(self) -> int:
        return len(self._deferred)

    @property
    def fault(self) -> CallFailed | None:
        """The reason to ask nothing more; None if there is none."""
        return self._deferred[-1][0] if len(self._deferred) >= IN_A_ROW else None

    def finish(self, *, too_many: bool = False) -> None:
        """Decide, at the end of a run, about the failures still deferred.

        Args:
            too_many: True if they would be more failures than are allowed.
        """
        if self._deferred and (too_many or not self._answered):
            raise self._deferred[-1][0]
        self.on_success()


def too_many_failed(failed: int, tried: int, allowed: float) -> bool:
    """True if the share of failures is larger than allowed and enough items were tried.

    Example:
        >>> too_many_failed(4, 10, 0.3), too_many_failed(3, 10, 0.3), too_many_failed(4, 5, 0.3)
        (True, False, False)
    """
    return tried >= ENOUGH and failed / tried > allowed


def fail(fault: Exception) -> NoReturn:
    """Raise a fault, as the next job of a run that it ends."""
    raise fault
