"""Limits on what a client may ask at once, in a minute and in a day.

A client is a key's holder or, without keys, an address. Each process counts by itself, from zero
when it starts.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from typedrag.serving.keys import open_keyring
from typedrag.serving.monitoring import Metrics, request_line
from typedrag.serving.responses import STOPPING, Fault, Refused, busy_error
from typedrag.serving.settings import HTTPLimits

_MINUTE, _DAY = 60.0, 86_400.0
_MOST_CLIENTS = 100_000
_SMOOTHING = 0.2
RATE_HEADERS = [f"X-RateLimit-{what}-{of}" for of in ("Requests", "Tokens") for what in ("Limit", "Remaining", "Reset")]


class Admission:
    """Lets in what is within the limits. While it is `stopping`, it lets in nothing."""

    def __init__(self, settings: HTTPLimits, metrics: Metrics) -> None:
        self.settings, self.metrics, self.stopping = settings, metrics, False
        self.keyring = open_keyring(settings.keys)
        self._works: set[asyncio.Timeout] = set()
        self._questions, self._failures = Allowance(_MINUTE), Allowance(_MINUTE)
        self._tokens = Allowance(_DAY)

    @property
    def under_way(self) -> int:
        """The number of works that run or wait."""
        return len(self._works)

    def turns(self, running: int, queue: int) -> Turns:
        return Turns(self, running, queue)

    def admit(self) -> None:
        """Count the current request as a question, or refuse it if its client has none left in this minute."""
        client, rate, _ = self._limits()
        left = self._questions.left(client, rate)
        self.count(int(left >= 1))
        if left < 1:
            raise _too_many("Too many requests in this minute; ask again later.", (1 - left) * _MINUTE / rate)

    def count(self, questions: int) -> None:
        """Count questions of the current request, and say in its headers what is left. Those of a batch may be more
        than are left; then the next ones wait for longer."""
        client, rate, tokens = self._limits()
        headers = _headers("Requests", rate, self._questions.take(client, rate, questions), _MINUTE)
        if tokens:
            headers |= _headers("Tokens", tokens, self._tokens.left(client, tokens), _DAY)
        request_line().headers |= headers

    def count_failure(self, address: str) -> None:
        """Count a request that had no valid key; an address has as many a minute as a key has requests."""
        if self._failures.take(address, self.settings.rate) < 0:
            raise _too_many("Too many requests without a valid key; ask again later.", _MINUTE / self.settings.rate)

    def check_tokens(self) -> None:
        """Refuse a question of a client that has used up its LM tokens."""
        client, _, limit = self._limits()
        if limit and (left := self._tokens.left(client, limit)) <= 0:
            raise _too_many("The LM tokens of this day are used up; ask again later.", (1 - left) * _DAY / limit)

    def spend_tokens(self, tokens: int) -> None:
        client, _, limit = self._limits()
        if limit:
            self._tokens.take(client, limit, tokens)

    @asynccontextmanager
    async def until_stopped(self) -> AsyncIterator[None]:
        """Count a work within, and refuse it if the server stops, or if the time to drain ends first."""
        if self.stopping:
            raise Refused(STOPPING)
        try:
            async with asyncio.timeout(None) as work:
                self._works.add(work)
                try:
                    yield
                finally:
                    self._works.discard(work)
        except TimeoutError:
            if work.expired():
                raise Refused(STOPPING) from None
            raise

    def _limits(self) -> tuple[str, int, int | None]:
        """The client of the current request, its questions per minute and its LM tokens per day."""
        line, common = request_line(), self.settings
        own = line.key or common
        return line.client, own.rate or common.rate, own.daily_tokens or common.daily_tokens

    async def drain(self) -> None:
        """Let in nothing more, wait for what is under way, for some seconds at most, and then refuse it.

        What agents ask behind an answer, such as the list of tools, is answered for another moment.
        """
        self.stopping = True
        seconds = self.settings.drain or self.settings.deadline
        end = time.monotonic() + seconds
        while self.under_way and time.monotonic() < end:
            await asyncio.sleep(0.05)
        for work in self._works:
            work.reschedule(0)
        await asyncio.sleep(min(1.0, seconds))


class Turns:
    """Turns at something that `running` may do at once, while as many as `queue` wait.

    Clients that wait take turns: who asks much waits behind its own questions, and not others behind them. A full queue
    makes room for a client that holds fewer places than another: the newest question of the greediest is refused.
    """

    def __init__(self, admission: Admission, running: int, queue: int) -> None:
        self._admission, self._running, self._places = admission, running, running + queue
        self._free = running
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._mean_seconds = 1.0

    @property
    def under_way(self) -> int:
        return self._held.total()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait for a turn of the current request's client, and hold it within."""
        client, metrics = request_line().client, self._admission.metrics
        async with self._admission.until_stopped():
            most = self._admission.settings.parallel or self._places
            if self._held[client] >= most or (self.under_way >= self._places and not self._make_room(client)):
                raise self._busy()
            self._held[client] += 1
            with metrics.waiting.track_inprogress():
                await self._wait(client)
            begun = time.monotonic()
            try:
                with metrics.running.track_inprogress():
                    yield
            finally:
                self._mean_seconds += _SMOOTHING * (time.monotonic() - begun - self._mean_seconds)
                self._leave(client)
                self._pass_on()

    def _leave(self, client: str) -> None:
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]

    def _busy(self) -> Refused:
        return busy_error(self._mean_seconds * self.under_way / self._running)

    def _make_room(self, client: str) -> bool:
        greedy = max(self._waiting, key=self._held.__getitem__, default=client)
        if self._held[greedy] <= self._held[client] + 1:
            return False
        turns = self._waiting[greedy]
        newest = turns.pop()
        if not turns:
            del self._waiting[greedy]
        if not newest.done():  # else it is given up just now
            self._leave(greedy)
            newest.set_exception(self._busy())
        return True

    async def _wait(self, client: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled() or not turn.exception():
                self._leave(client)
            if not turn.cancelled() and not turn.exception():  # it had the turn at the same moment
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the turn to the client that has waited longest since its last one."""
        while self._waiting:
            client = next(iter(self._waiting))
            turns = self._waiting.pop(client)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():  # else it was given up
                turn.set_result(None)
                return
        self._free += 1


class Allowance:
    """An amount that each client may take, all at once; it is full again after some seconds.

    A client may owe something. Those who have not asked for longest are forgotten first.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic, most: int = _MOST_CLIENTS) -> None:
        self._seconds, self._clock, self._most = seconds, clock, most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def left(self, client: str, limit: int) -> float:
        left, since = self._left.get(client, (limit, 0.0))
        return min(limit, left + (self._clock() - since) * limit / self._seconds)

    def take(self, client: str, limit: int, amount: int = 1) -> float:
        """Take some, and return what is left."""
        left = self.left(client, limit) - amount
        self._left[client] = (left, self._clock())
        self._left.move_to_end(client)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return left


def _headers(kind: str, limit: int, left: float, seconds: float) -> dict[str, str]:
    """Headers that say what is left, as OpenAI's clients read it."""
    return {
        f"X-RateLimit-Limit-{kind}": str(limit),
        f"X-RateLimit-Remaining-{kind}": str(max(0, math.floor(left))),
        f"X-RateLimit-Reset-{kind}": f"{math.ceil((limit - left) * seconds / limit)}s",
    }


def _too_many(message: str, wait: float) -> Refused:
    return Refused(Fault(429, "rate_limited", message, math.ceil(wait)))
