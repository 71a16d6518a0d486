"""The service that answers strangers' questions within limits, over HTTP, chat clients or MCP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import dspy

from typedrag.core.call_context import use_context
from typedrag.core.errors import TypedRAGError, Unavailable
from typedrag.core.events import AnswerEnded, Event
from typedrag.core.question_types import QuestionType
from typedrag.core.records import Answer
from typedrag.lms.asking import hide_server_messages
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.cost import CostTracker, track_cost
from typedrag.lms.lm import use_lm
from typedrag.lms.threads import THREADS, limit_threads, run_in_thread
from typedrag.lms.trace import limit_tokens
from typedrag.programs.program import read_turns
from typedrag.serving.admission import Admission
from typedrag.serving.monitoring import Metrics, request_line
from typedrag.serving.responses import DEADLINE, Fault, Refused, out_of_order_error, to_fault
from typedrag.serving.settings import Settings
from typedrag.signatures.answering import Turn

if TYPE_CHECKING:
    from typedrag.serving.programs import LoadedProgram
    from typedrag.serving.tracing import Tracing

logger = logging.getLogger(__name__)

T = TypeVar("T")

NOT_FOUND = Fault(404, "no_such_program", "No program is served by this name; GET /v1/models lists them.")
_TO_CLOSE = 8.0
_SEARCHES = 4  # at once: each takes a core
_THREADS = ThreadPoolExecutor(4, thread_name_prefix="typedrag-background")
Source = Callable[[], AsyncGenerator[Event, None]]


class Service:
    """Programs that answer no more questions at once than the settings allow.

    Waiting questions take no thread. Equal questions at the same time are answered once. After a request's deadline,
    or when its client leaves, no further LM call is made, unless others asked the same.

    Args:
        programs: The programs to serve; the first is the default.
        settings: The limits.
        tracing: Where spans of questions are sent; None for nowhere.
    """

    def __init__(self, programs: Iterable[LoadedProgram], settings: Settings, tracing: Tracing | None = None) -> None:
        self.programs = {loaded.name: loaded for loaded in programs}
        self.settings, self.metrics, self.tracing = settings, Metrics(self.programs), tracing
        self.admission = Admission(settings, self.metrics)
        self._questions = self.admission.turns(settings.running, settings.queue)
        self._searches = self.admission.turns(_SEARCHES, settings.queue)
        self._in_python = self.admission.turns(1, settings.queue)
        self.breaker = CircuitBreaker(settings.breaker_failures, settings.breaker_seconds)
        self._shared: dict[Hashable, SharedRequest] = {}
        self.reload_errors: dict[str, str] = {}
        self.reloading = ""
        limit_calls_in_flight(settings.lm_calls)
        limit_threads(max(THREADS, settings.running))

    @property
    def refusing(self) -> bool:
        """True if all questions are refused, until it is time to let one through as a trial."""
        return self.breaker.seconds_left > 0

    def program(self, name: str = "") -> LoadedProgram:
        if name and name not in self.programs:
            raise Refused(NOT_FOUND)
        return self.programs[name] if name else next(iter(self.programs.values()))

    def swap(self, loaded: LoadedProgram) -> None:
        """Replace the program of the same name; questions under way end on the old one."""
        self.programs[loaded.name] = loaded
        self.reload_errors.pop(loaded.name, None)

    async def answer(
        self,
        question: str,
        program: str = "",
        turns: tuple[Turn, ...] = (),
        question_type: QuestionType | None = None,
    ) -> Answer:
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

        `turns` are those of the conversation that the question ends; a header says how many are read. With `tokens`,
        the answer's text comes while it is written, which costs as much as all else; where others have asked the same,
        who asked first has chosen.
        """
        begun = time.monotonic()
        loaded, line = self.program(program), request_line()
        line.program = loaded.name
        line.questions.append(question)
        read = read_turns(question, turns) if self.settings.standalone else ()
        if turns:
            line.headers["X-Typedrag-Turns-Read"] = f"{len(read)} of {len(turns)}"
        source = partial(loaded.program.stream, question, read, question_type, tokens=tokens)
        try:
            async with aclosing(self.share(loaded, (question.strip(), read, question_type), source)) as events:
                async for event in events:
                    if isinstance(event, AnswerEnded):
                        line.add_answer(event.answer)
                        self.metrics.answer_seconds.observe(time.monotonic() - begun)
                    yield event
        except Exception as error:
            line.fault = to_fault(error)
            if line.fault is DEADLINE:
                self.metrics.answer_seconds.observe(time.monotonic() - begun)
            raise

    def share(self, loaded: LoadedProgram, identity: Hashable, source: Source) -> AsyncGenerator[Event, None]:
        """The events of a source that asks a program's LM, within the limits of a question.

        Questions of equal `identity` at the same time are answered once.
        """
        key = (loaded.name, loaded.since, identity)
        if (shared := self._shared.get(key)) is None or shared.abandoned:
            if self.refusing:
                raise out_of_order_error(self.breaker.seconds_left)
            self.admission.check_tokens()
            shared = SharedRequest(partial(self._events, loaded, source), partial(self._end, key, loaded))
            self._shared[key] = shared
        return shared.subscribe(self.settings.deadline)

    async def search(self, work: Callable[[], T], *, in_python: bool = False) -> T:
        """The result of work that asks no LM, in a thread, within the limits of searches. What is all `in_python` is
        done one after the other: at once it would take as long, and the event loop would wait for each."""
        turns = self._in_python if in_python else self._searches
        async with asyncio.timeout(self.settings.deadline), turns.take():
            return await run_in_thread(work)

    async def close(self) -> None:
        """Send the spans that are still pending, for some seconds at most."""
        if self.tracing is not None:
            with suppress(TimeoutError):  # a collector may hang
                await asyncio.wait_for(run_in_background(self.tracing.close), _TO_CLOSE)

    async def _events(self, loaded: LoadedProgram, source: Source) -> AsyncGenerator[Event, None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._questions.take())
            if self.breaker.begin_trial():
                stack.enter_context(use_context(fresh=True))  # a kept reply would not show that the LM is back
            account = CostTracker()
            request_line().accounts.append(account)
            stack.callback(lambda: self.admission.spend_tokens(account.spent.tokens))
            stack.callback(lambda: self.metrics.count_spending(loaded, account.spent))
            stack.enter_context(use_lm(loaded.lm))
            stack.enter_context(dspy.context(trace=None))  # it would keep the prompts of the last 10,000 calls
            stack.enter_context(limit_tokens(self.settings.question_tokens))
            stack.enter_context(track_cost(account))
            stack.enter_context(hide_server_messages())
            if self.tracing is not None:
                stack.enter_context(self.tracing.follow())
            async with aclosing(source()) as events:
                async for event in events:
                    self.metrics.count_event(loaded, event)
                    if self.tracing is not None and isinstance(event, AnswerEnded):
                        self.tracing.add_answer(loaded, event)
                    yield event

    def _end(self, key: Hashable, loaded: LoadedProgram, shared: SharedRequest, error: BaseException | None) -> None:
        if self._shared.get(key) is shared:  # an abandoned one may have a successor
            del self._shared[key]
        if isinstance(error, Refused):
            return
        if error is not None:
            outcome = "left" if isinstance(error, asyncio.CancelledError) else to_fault(error).code
            self.metrics.questions.labels(loaded.name, outcome).inc()
        if isinstance(error, asyncio.CancelledError):
            return
        self.breaker.record(error)
        self.metrics.breaker_open.set(self.breaker.open)
        if error is None:
            return
        if self.tracing is not None:
            self.tracing.add_error(error)
        if to_fault(error).status >= 500:
            expected = isinstance(error, TypedRAGError | TimeoutError)
            level, trace = (logging.WARNING, None) if expected else (logging.ERROR, error)
            logger.log(level, "a question has no answer: %s", error, exc_info=trace)


class SharedRequest:
    """The events of a question, shared by all requests that ask the same at the same time (single flight).

    It ends with its source, or when its last subscriber leaves: it is `abandoned` then, and nobody may subscribe any
    more. At the end `on_end` is called with it and the error, if any.
    """

    def __init__(self, source: Source, on_end: Callable[[SharedRequest, BaseException | None], None]) -> None:
        self._source, self._on_end = source, on_end
        self._events: list[Event] = []
        self._error: BaseException | None = None
        self._reason: BaseException = asyncio.CancelledError()  # for being abandoned
        self._news = asyncio.Event()
        self._subscribers = 0
        self.abandoned = self._ended = False
        self._task = asyncio.create_task(self._run())

    async def subscribe(self, seconds: float) -> AsyncGenerator[Event, None]:
        late, timeout = False, TimeoutError(f"its deadline of {seconds:g} s has passed")

        def be_late() -> None:
            nonlocal late
            late = True
            self._wake()

        timer = asyncio.get_running_loop().call_later(seconds, be_late)  # a timeout of each wait would be a task each
        self._subscribers += 1
        position = 0
        try:
            while True:
                while position < len(self._events):
                    position += 1
                    yield self._events[position - 1]
                if self._ended:
                    break
                if late:
                    raise timeout
                await self._news.wait()
            if self._error is not None:
                raise self._error
        finally:
            timer.cancel()
            self._subscribers -= 1
            if not self._subscribers:
                self.abandoned = True
                if late:
                    self._reason = timeout
                self._task.cancel()

    async def _run(self) -> None:
        try:
            async for event in self._source():
                self._events.append(event)
                self._wake()
        except asyncio.CancelledError:
            self._error = self._reason
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


class CircuitBreaker:
    """Opens after consecutive failures, and closes after the first question that is answered again.

    While it is open, a question is let through every so many `seconds`.
    """

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = failures, seconds, clock
        self._failures, self._last_trial = 0, 0.0

    @property
    def open(self) -> bool:
        return self._failures >= self._most

    @property
    def seconds_left(self) -> float:
        """The seconds until a question is let through as a trial; 0 or less if one is now."""
        return self._last_trial + self._seconds - self._clock() if self.open else 0.0

    def begin_trial(self) -> bool:
        """True for a question that is let through as a trial; raises if others are refused."""
        if not self.open:
            return False
        if (seconds := self.seconds_left) > 0:
            raise out_of_order_error(seconds)
        self._last_trial = self._clock()
        return True

    def record(self, error: BaseException | None) -> None:
        """Count the end of a question; an error of the question itself says nothing about the LM."""
        if error is None:
            self._failures = 0
        elif isinstance(error, Unavailable):
            self._failures += 1
            self._last_trial = self._clock()


async def run_in_background(function: Callable[[], T]) -> T:
    """The result of a function, run in a thread apart from those that answer."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function)


async def limit_time(seconds: float, work: Awaitable[T]) -> T:
    """The result of some work, or an error that names the limit."""
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError:
        raise TimeoutError(f"no reply within {seconds:g} s") from None
