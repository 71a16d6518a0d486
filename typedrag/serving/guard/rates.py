"""Rate limits: a bucket of tokens per client, which refills with time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_MOST = 100_000


class Rates:
    """Buckets of a minute's requests, one per client.

    Args:
        clock: A monotonic clock in seconds.
        most: The most buckets to remember; the least recently used are forgotten first.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str, rate: int) -> float:
        """Take a token. Returns 0 if there was one, else the seconds until there is.

        Args:
            who: The client.
            rate: Requests per minute, all of which may come at once.
        """
        now = self._clock()
        left, since = self._buckets.pop(who, (float(rate), now))
        left = min(float(rate), left + (now - since) * rate / 60)
        admitted = left >= 1
        self._buckets[who] = (left - admitted, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0 if admitted else (1 - left) * 60 / rate
