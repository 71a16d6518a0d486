"""A circuit breaker: where the LM or the index is out of order, questions are refused at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from typedrag.errors import Unavailable
from typedrag.serving.faults import Refused, out_of_order


class Breaker:
    """Opens after failures in a row, and closes after the first question that is answered again.

    Args:
        failures: In a row, that open it.
        seconds: That it stays open; then one question is let through, and the next only when that has ended.
        clock: Seconds that only grow.
    """

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._tried_again = 0.0

    @property
    def open(self) -> bool:
        """Whether questions are refused, but for one now and then."""
        return self._failures >= self._most

    @property
    def left(self) -> float:
        """Seconds until one is let through to see; not above 0 if any is."""
        return self._tried_again + self._seconds - self._clock() if self.open else 0.0

    def check(self) -> None:
        """Let a question through.

        Raises:
            Refused: If it is open.
        """
        if not self.open:
            return
        if self.left > 0:
            raise Refused(out_of_order(math.ceil(self.left)))
        self._tried_again = self._clock()

    def tell(self, error: BaseException | None) -> None:
        """Count how a question ended; a fault of the question itself says nothing of the LM."""
        if error is None:
            self._failures = 0
        elif isinstance(error, Unavailable):
            self._failures += 1
            self._tried_again = self._clock()
