"""Faults of LM calls, told apart: an LM that fails at some questions, and one that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from typedrag.errors import CallFailed

IN_A_ROW = 5
"""Consecutive questions that an LM fails at before it is taken to be out of use."""
ENOUGH = 10
"""Questions after which the share of failures is looked at."""


class Faults:
    """LM faults that are held back until it is known if the questions or the LM caused them.

    If the LM goes on to answer other questions, each fault is kept as its question's failure. If the LM fails at one
    question after the other, the LM is at fault, and the questions are left to be asked again.

    Args:
        answered: True if the LM has already answered a question.

    Example:
        >>> kept: list[str] = []
        >>> faults = Faults()
        >>> faults.hold(CallFailed("too slow"), lambda: kept.append("q1"))
        >>> faults.answer()
        >>> kept
        ['q1']
    """

    def __init__(self, answered: bool = False) -> None:
        self._held: list[tuple[CallFailed, Callable[[], None]]] = []
        self._answered = answered

    def hold(self, fault: CallFailed, keep: Callable[[], None] = lambda: None) -> None:
        """Hold back a fault; `keep` makes it the question's failure."""
        if self._held and self._held[-1][0] is fault:
            return  # each module that an error passes through holds it again
        self._held.append((fault, keep))

    def answer(self) -> None:
        """Keep the held faults as their questions' failures: the LM has answered, so it was not to blame."""
        self._answered = True
        held, self._held = self._held, []
        for _, keep in held:
            keep()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def fault(self) -> CallFailed | None:
        """The reason to ask nothing more; None if there is none."""
        return self._held[-1][0] if len(self._held) >= IN_A_ROW else None

    def settle(self, *, too_many: bool = False) -> None:
        """Decide, at the end of a run, about the faults still held back.

        Args:
            too_many: True if they would be more failures than are allowed.

        Raises:
            CallFailed: If no question was answered, or they are too many.
        """
        if self._held and (too_many or not self._answered):
            raise self._held[-1][0]
        self.answer()


def too_many(failed: int, tried: int, allowed: float) -> bool:
    """True if the share of failures is larger than allowed and enough questions were tried.

    Example:
        >>> too_many(4, 10, 0.3), too_many(3, 10, 0.3), too_many(4, 5, 0.3)
        (True, False, False)
    """
    return tried >= ENOUGH and failed / tried > allowed


def fail(fault: Exception) -> NoReturn:
    """Raise a fault, as the next job of a run that it ends."""
    raise fault
