"""Observers of a server: metrics, logs and traces."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from typedrag.events import Event
from typedrag.lms.cost import Spending
from typedrag.serving.served import Served

logger = logging.getLogger(__name__)


class Observer:
    """Is told of all requests and questions, and does nothing; subclasses override some methods.

    All methods but `close` are called in the event loop and must not wait. Those about a question run in its own
    context, a copy of the context of the first request that asked it.
    """

    def requested(self, path: str, status: int, seconds: float) -> None:
        """A request has ended; `path` is that of its route, never text of the client."""

    def happened(self, served: Served, event: Event) -> None:
        """An event on the way to an answer."""

    def ended(self, served: Served, error: BaseException | None) -> None:
        """A question was answered, failed, or was abandoned by all who asked it (a `CancelledError`)."""

    def spent(self, served: Served, spending: Spending) -> None:
        """A question has ended, with this cost."""

    def replied(self, seconds: float) -> None:
        """A request got its answer after some seconds."""

    def refused(self, status: int, code: str) -> None:
        """A request ended in an error."""

    def changed(self, running: int, waiting: int, out_of_order: bool) -> None:
        """The number of running or waiting questions has changed, or the state of the LM and the index."""

    def reloaded(self, program: str, outcome: str) -> None:
        """A program was reloaded: it is `swapped` in, `refused`, or something that it needs is `unavailable`."""

    def close(self) -> None:
        """The server ends: write what is still pending. This may wait, since it runs in a thread."""


class Observers(Observer):
    """Several observers as one. If one fails, the log says so, and questions go on.

    Args:
        observers: The observers, in the order in which they are called.
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
