"""Telling an LM that fails at some questions from one that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from typedrag.errors import CallFailed

IN_A_ROW = 5
"""Questions that an LM fails at, answering none in between, after which it is taken to be out of use."""
ENOUGH = 10
"""Questions after which a share of failures says something."""


class Faults:
    """What an LM failed at, held back until it is known whose fault that is.

    Where the LM goes on to answer others it was the question's, and is kept as its failure; where it fails at one
    after the other it is the LM's, and the questions are left to be asked again.

    Args:
        answered: Whether the LM has answered a question before.

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
            return  # as each module that it passes tells it
        self._held.append((fault, keep))

    def answer(self) -> None:
        """The LM has answered a question: it was not to blame for those before."""
        self._answered = True
        held, self._held = self._held, []
        for _, keep in held:
            keep()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def fault(self) -> CallFailed | None:
        """Why no more is to be asked; None if there is no reason."""
        return self._held[-1][0] if len(self._held) >= IN_A_ROW else None

    def settle(self, *, too_many: bool = False) -> None:
        """Decide about those that are held back in the end.

        Args:
            too_many: Whether they would be more failures than are allowed.

        Raises:
            CallFailed: If no question was answered, or they are too many.
        """
        if self._held and (too_many or not self._answered):
            raise self._held[-1][0]
        self.answer()


def too_many(failed: int, tried: int, allowed: float) -> bool:
    """Whether a larger share has failed than is allowed, once that says something.

    Example:
        >>> too_many(4, 10, 0.3), too_many(3, 10, 0.3), too_many(4, 5, 0.3)
        (True, False, False)
    """
    return tried >= ENOUGH and failed / tried > allowed


def fail(fault: Exception) -> NoReturn:
    """End a run by a fault, as its next job."""
    raise fault
