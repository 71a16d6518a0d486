"""A question being answered, which any number of requests may follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from typedrag.events import Event


class Flight:
    """The events of a question, shared by all requests that ask the same at the same time.

    It ends with its source, or when its last follower leaves.

    Args:
        source: Yields the events.
        on_end: Called at the end with the flight, and the error, if any.

    Attributes:
        abandoned: Whether its last follower has left; it then ends in a moment, and nobody may follow it any more.
    """

    def __init__(
        self,
        source: Callable[[], AsyncGenerator[Event, None]],
        on_end: Callable[[Flight, BaseException | None], None],
    ) -> None:
        self.abandoned = False
        self._events: list[Event] = []
        self._error: BaseException | None = None
        self._ended = False
        self._news = asyncio.Event()
        self._followers = 0
        self._source = source
        self._on_end = on_end
        self._task = asyncio.create_task(self._run())

    async def follow(self, seconds: float) -> AsyncGenerator[Event, None]:
        """Yield all events, from the first.

        Raises:
            TimeoutError: If it has not ended after `seconds`.
            Exception: The error of the source.
        """
        late = False

        def be_late() -> None:
            nonlocal late
            late = True
            self._wake()

        timer = asyncio.get_running_loop().call_later(seconds, be_late)  # a timeout of each wait would be a task each
        self._followers += 1
        position = 0
        try:
            while True:
                while position < len(self._events):
                    position += 1
                    yield self._events[position - 1]
                if self._ended:
                    break
                if late:
                    raise TimeoutError
                await self._news.wait()
            if self._error is not None:
                raise self._error
        finally:
            timer.cancel()
            self._followers -= 1
            if not self._followers:
                self.abandoned = True
                self._task.cancel()

    async def _run(self) -> None:
        try:
            async for event in self._source():
                self._events.append(event)
                self._wake()
        except asyncio.CancelledError:
            self._error = asyncio.CancelledError()
            raise
        except Exception as error:
            self._error = error
        finally:
            self._ended = True
            self._wake()
            self._on_end(self, self._error)

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
