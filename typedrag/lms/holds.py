"""Pauses that LM servers ask for: what one call is told by `Retry-After`, all calls of the process keep."""

from __future__ import annotations

import time
from collections.abc import Callable


class Holds:
    """The times until which servers are not asked.

    Attributes:
        told: Called with each pause that a server asks this process for; workers tell each other so.
    """

    def __init__(self) -> None:
        self.told: Callable[[str, float], None] = lambda server, seconds: None
        self._until: dict[str, float] = {}

    def ask(self, server: str, seconds: float) -> None:
        """Keep a pause that the server has asked this process for, and tell of it."""
        self.keep(server, seconds)
        self.told(server, seconds)

    def keep(self, server: str, seconds: float) -> None:
        """Leave the server alone for so many seconds from now; a longer pause stays."""
        self._until[server] = max(self._until.get(server, 0.0), time.monotonic() + seconds)

    def left(self, server: str) -> float:
        """The seconds that the server is still to be left alone.

        Example:
            >>> holds = Holds()
            >>> holds.keep("a", 60)
            >>> round(holds.left("a")), holds.left("b")
            (60, 0.0)
        """
        return max(0.0, self._until.get(server, 0.0) - time.monotonic())

    @property
    def all_left(self) -> dict[str, float]:
        """The seconds left of each server's pause that has not ended."""
        return {server: left for server in list(self._until) if (left := self.left(server))}


HOLDS = Holds()
"""Those of this process."""
