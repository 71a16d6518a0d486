"""Who is told what happens in a server: metrics, logs and traces are observers."""

from __future__ import annotations

from typedrag.events import Event
from typedrag.serving.served import Served


class Observer:
    """Hears of all questions, and does nothing; what observes writes some of these."""

    def happened(self, served: Served, event: Event) -> None:
        """An event on the way to an answer."""

    def ended(self, served: Served, error: BaseException | None) -> None:
        """A question was answered, ended in an error, or was given up by all who asked it (a `CancelledError`)."""

    def replied(self, seconds: float) -> None:
        """A request had its answer after so many seconds."""

    def refused(self, status: int, code: str) -> None:
        """A request ended in an error."""
