"""The service that answers strangers' questions within limits, over HTTP, chat clients or MCP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping
from contextlib import aclosing, suppress
from functools import partial

import dspy

from typedrag.errors import TypedRAGError
from typedrag.events import AnswerEnded, Event
from typedrag.lms.asking import hide_server_messages
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.cost import CostTracker, track_cost
from typedrag.lms.lm import use_lm
from typedrag.lms.threads import THREADS, limit_threads
from typedrag.lms.trace import limit_tokens
from typedrag.question_types import QuestionType
from typedrag.records import Answer
from typedrag.serving.breaker import Breaker
from typedrag.serving.faults import NOT_FOUND, STOPPING, Refused, busy, fault_of
from typedrag.serving.flight import Flight
from typedrag.serving.logs import noted
from typedrag.serving.metrics import Metrics
from typedrag.serving.observer import Observer, Observers
from typedrag.serving.served import Served
from typedrag.serving.settings import Settings
from typedrag.serving.upkeep import aside, drained
from typedrag.signatures.answering import Turn

logger = logging.getLogger(__name__)

_SMOOTHING = 0.2
_TO_CLOSE = 8.0
_Key = tuple[str, str, Hashable]
"""The identity of a question: those with the same key are answered once."""
_Source = Callable[[], AsyncGenerator[Event, None]]


class Service:
    """Programs that answer no more questions at once than the settings allow.

    Waiting questions take no thread. Equal questions at the same time are answered once. After a request's deadline,
    or when its client leaves, no further LM call is made, unless others asked the same.

    Args:
        programs: The programs to serve; the first is the default.
        settings: The limits.
        observers: Told of questions besides the service's own metrics.
    """

    def __init__(self, programs: Iterable[Served], settings: Settings, *observers: Observer) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.observer: Observer = Observers((self.metrics, *observers))
        self._programs = {served.name: served for served in programs}
        self._slots = asyncio.Semaphore(settings.running)
        self._breaker = Breaker(settings.breaker_failures, settings.breaker_seconds)
        self._flights: dict[_Key, Flight] = {}
        self._mean_seconds = 1.0
        self.running = 0
        self.waiting = 0
        self.stopping = False
        self.reload_errors: dict[str, str] = {}
        limit_calls_in_flight(settings.lm_calls)
        limit_threads(max(THREADS, settings.running))

    @property
    def programs(self) -> Mapping[str, Served]:
        """The served programs by name; the first is the default."""
        return self._programs

    @property
    def out_of_order(self) -> bool:
        """True if questions are refused because the LM or the index could not be used."""
        return self._breaker.open

    @property
    def refusing(self) -> bool:
        """True if all questions are refused, until it is time to let one through as a trial."""
        return self._breaker.left > 0

    def program(self, name: str = "") -> Served:
        """The program of a name; the default program if the name is empty.

        Raises:
            Refused: If there is no such program.
        """
        if name and name not in self._programs:
            raise Refused(NOT_FOUND)
        return self._programs[name] if name else next(iter(self._programs.values()))

    def swap(self, served: Served) -> None:
        """Replace the program of the same name; questions under way end on the old one."""
        self._programs[served.name] = served
        self.reload_errors.pop(served.name, None)

    async def answer(
        self,
        question: str,
        program: str = "",
        turns: tuple[Turn, ...] = (),
        question_type: QuestionType | None = None,
    ) -> Answer:
        """The answer to a question.

        Raises:
            Refused: If the server does not take it now.
            TimeoutError: If the deadline passes.
            TypedRAGError: As the program does.
        """
        async with aclosing(self.stream(question, program, turns, question_type, tokens=False)) as events:
            async for event in events:
                if isinstance(event, AnswerEnded):
                    return event.answer
        raise AssertionError("a stream without an answer ends in an error")

    async def stream(
        self,
        question: str,
        program: str = "",
        turns: tuple[Turn, ...] = (),
        question_type: QuestionType | None = None,
        *,
        tokens: bool = True,
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of answering a question; the last one is `AnswerEnded`.

        Args:
            question: To answer.
            program: By its name; the default one if it is empty.
            turns: Of the conversation that the question ends, if the setting `standalone` lets them be looked at.
            question_type: Of the question, if its asker says it.
            tokens: True for the answer's text while it is written, which costs as much as all else; where
                others have asked the same, who asked first has chosen.

        Raises:
            Refused: If the server does not take it now.
            TimeoutError: If the deadline passes.
            TypedRAGError: As the program does.
        """
        begun = time.monotonic()
        served = self.program(program)
        turns = turns if self.settings.standalone else ()
        source = partial(served.program.stream, question, turns, question_type, tokens=tokens)
        following = self.follow(served, (question.strip(), turns, question_type), source)
        async with aclosing(noted(following, served.name, question)) as events:
            async for event in events:
                if isinstance(event, AnswerEnded):
                    self.observer.replied(time.monotonic() - begun)
                yield event

    async def follow(self, served: Served, identity: Hashable, source: _Source) -> AsyncGenerator[Event, None]:
        """Yield the events of a source that asks a program's LM, within the limits of a question.

        Args:
            served: The program.
            identity: The identity of the question: equal ones at the same time are answered once.
            source: Yields the events.

        Raises:
            Refused: If the server does not take it now.
            TimeoutError: If the deadline passes.
            TypedRAGError: As the source does.
        """
        flight = self._flight(served, identity, source)
        async with aclosing(flight.follow(self.settings.deadline)) as events:
            async for event in events:
                yield event

    async def drain(self) -> None:
        """Refuse new questions, and wait for those under way as long as the settings allow."""
        self.stopping = True
        await drained(lambda: self._flights, self.settings.drain)

    async def close(self) -> None:
        """Let the observers write what is still pending, for some seconds at most."""
        with suppress(TimeoutError):  # a store of traces may hang
            await asyncio.wait_for(aside(self.observer.close), _TO_CLOSE)

    def _flight(self, served: Served, identity: Hashable, source: _Source) -> Flight:
        key = (served.name, str(served.since), identity)
        if (known := self._flights.get(key)) and not known.abandoned:
            return known
        if self.stopping:
            raise Refused(STOPPING)
        if len(self._flights) >= self.settings.running + self.settings.queue:
            raise Refused(busy(round(self._mean_seconds * len(self._flights) / self.settings.running)))
        self._breaker.check()
        flight = Flight(partial(self._events, served, source), partial(self._ended, key, served))
        self._flights[key] = flight
        return flight

    async def _events(self, served: Served, source: _Source) -> AsyncGenerator[Event, None]:
        self._count(waiting=1)
        try:
            await self._slots.acquire()
        finally:
            self._count(waiting=-1)
        self._count(running=1)
        begun, account = time.monotonic(), CostTracker()
        try:
            budget = limit_tokens(self.settings.question_tokens)
            untraced = dspy.context(trace=None)  # DSPy would keep the prompts of the last 10,000 calls
            with use_lm(served.lm), untraced, budget, track_cost(account), hide_server_messages():
                async with aclosing(source()) as events:
                    async for event in events:
                        self.observer.happened(served, event)
                        yield event
        finally:
            self._count(running=-1)
            self._slots.release()
            self.observer.spent(served, account.spent)
            self._mean_seconds += _SMOOTHING * (time.monotonic() - begun - self._mean_seconds)

    def _count(self, *, running: int = 0, waiting: int = 0) -> None:
        self.running += running
        self.waiting += waiting
        self.observer.changed(self.running, self.waiting, self.out_of_order)

    def _ended(self, key: _Key, served: Served, flight: Flight, error: BaseException | None) -> None:
        if self._flights.get(key) is flight:  # an abandoned one may have a successor
            del self._flights[key]
        if not isinstance(error, asyncio.CancelledError):
            self._breaker.tell(error)
            self._count()
        self.observer.ended(served, error)
        if error is None or isinstance(error, asyncio.CancelledError):
            return
        if fault_of(error).status >= 500:
            logger.log(
                logging.WARNING if isinstance(error, TypedRAGError) else logging.ERROR,
                "a question has no answer: %s",
                error,
                exc_info=None if isinstance(error, TypedRAGError) else error,
            )
