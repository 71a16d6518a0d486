"""A circuit breaker: while the LM or the index is out of order, questions are refused at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from typedrag.errors import Unavailable
from typedrag.serving.faults import Refused, out_of_order


class Breaker:
    """Opens after consecutive failures, and closes after the first question that is answered again.

    Args:
        failures: The number of consecutive failures that open it.
        seconds: The time between questions let through while it is open.
        clock: A monotonic clock in seconds.
    """

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._tried_again = 0.0

    @property
    def open(self) -> bool:
        """True if questions are refused, except one now and then."""
        return self._failures >= self._most

    @property
    def left(self) -> float:
        """The seconds until a question is let through as a trial; 0 or less if one is now."""
        return self._tried_again + self._seconds - self._clock() if self.open else 0.0

    def check(self) -> None:
        """Let a question through, or refuse it.

        Raises:
            Refused: If the breaker is open and no trial is due.
        """
        if not self.open:
            return
        if self.left > 0:
            raise Refused(out_of_order(math.ceil(self.left)))
        self._tried_again = self._clock()

    def tell(self, error: BaseException | None) -> None:
        """Count the end of a question; an error of the question itself says nothing about the LM."""
        if error is None:
            self._failures = 0
        elif isinstance(error, Unavailable):
            self._failures += 1
            self._tried_again = self._clock()
