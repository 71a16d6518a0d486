"""How often somebody may ask: a bucket of tokens each, which fills up with time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_MOST = 100_000


class Rates:
    """Buckets that hold a minute's requests, by whoever asks.

    Args:
        clock: Seconds that only grow.
        most: Buckets that are remembered; those are forgotten first that were not used for longest.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str, rate: int) -> float:
        """Take a token; the seconds until there is one, if there is none. 0 if there was.

        Args:
            who: Asks.
            rate: Requests a minute, all of which may come at once.
        """
        now = self._clock()
        left, since = self._buckets.pop(who, (float(rate), now))
        left = min(float(rate), left + (now - since) * rate / 60)
        taken = left >= 1
        self._buckets[who] = (left - taken, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0 if taken else (1 - left) * 60 / rate
