"""Who is told what happens in a server: metrics, logs and traces are observers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from typedrag.events import Event
from typedrag.lms.spending import Spending
from typedrag.serving.served import Served

logger = logging.getLogger(__name__)


class Observer:
    """Hears of all requests and questions, and does nothing; what observes writes some of these.

    All but `close` are called in the event loop and must not wait. What is called of a question is called in a context
    of its own, which is a copy of that of the request which asked it first.
    """

    def requested(self, path: str, status: int, seconds: float) -> None:
        """A request has ended; `path` is that of its route, not what the client has written."""

    def happened(self, served: Served, event: Event) -> None:
        """An event on the way to an answer."""

    def ended(self, served: Served, error: BaseException | None) -> None:
        """A question was answered, ended in an error, or was given up by all who asked it (a `CancelledError`)."""

    def spent(self, served: Served, spending: Spending) -> None:
        """A question that ends has cost this."""

    def replied(self, seconds: float) -> None:
        """A request had its answer after so many seconds."""

    def refused(self, status: int, code: str) -> None:
        """A request ended in an error."""

    def changed(self, running: int, waiting: int, out_of_order: bool) -> None:
        """Other questions run or wait, or the LM or the index is in order again, or no more."""

    def reloaded(self, program: str, outcome: str) -> None:
        """A program was to be opened anew: it is `swapped` in, `refused`, or what it needs is `unavailable`."""

    def close(self) -> None:
        """The server ends: what is still held is to be written. This may wait, as it is called in a thread."""


class Observers(Observer):
    """Several as one. One that fails is said in the log, and does no harm to a question.

    Args:
        observers: In the order that they are told.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def requested(self, path: str, status: int, seconds: float) -> None:
        """Tell all."""
        self._tell(lambda each: each.requested(path, status, seconds))

    def happened(self, served: Served, event: Event) -> None:
        """Tell all."""
        self._tell(lambda each: each.happened(served, event))

    def ended(self, served: Served, error: BaseException | None) -> None:
        """Tell all."""
        self._tell(lambda each: each.ended(served, error))

    def spent(self, served: Served, spending: Spending) -> None:
        """Tell all."""
        self._tell(lambda each: each.spent(served, spending))

    def replied(self, seconds: float) -> None:
        """Tell all."""
        self._tell(lambda each: each.replied(seconds))

    def refused(self, status: int, code: str) -> None:
        """Tell all."""
        self._tell(lambda each: each.refused(status, code))

    def changed(self, running: int, waiting: int, out_of_order: bool) -> None:
        """Tell all."""
        self._tell(lambda each: each.changed(running, waiting, out_of_order))

    def reloaded(self, program: str, outcome: str) -> None:
        """Tell all."""
        self._tell(lambda each: each.reloaded(program, outcome))

    def close(self) -> None:
        """Close all."""
        self._tell(lambda each: each.close())

    def _tell(self, what: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                what(observer)
            except Exception as error:
                logger.error("%s failed: %s", type(observer).__name__, error, exc_info=error)
