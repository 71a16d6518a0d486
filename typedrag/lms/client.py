"""LM calls that end in time, each of them counted, and read while they are written where somebody follows the question.

DSPy makes a call through an engine. Our engine leaves the call to DSPy's own LM (its client, or LiteLLM) and adds
what DSPy has no setting for: a bound on tries and waits, a pause of all calls where a server asks one of them for it,
a warning that says why a call takes long, a count that does not depend on the tokens that a server reports, and text
that cannot pass for a token of the chat template.

Calls of followed questions are made in one event loop of the process, whose thread receives each piece of a reply: the
thread that waits for the whole reply can give up at any time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import random
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import anyio.from_thread
import dspy
from dspy._vendor.lm15.providers import openai_chat
from dspy._vendor.lm15.providers.common import data_part_text
from dspy._vendor.lm15.types import DataPart, StreamDeltaEvent, StreamEvent, TextDelta
from dspy.clients.backend_selection import CLIENT_KEYS
from dspy.clients.costs import estimate_cost
from dspy.clients.model_metadata import model_info
from dspy.lm15 import Request, Response, TextPart, UnsupportedFeatureError, request_from_openai_chat, response_to_events
from dspy.lm15 import Usage as ReportedUsage
from dspy.utils.callback import BaseCallback
from pydantic_core import from_json

from typedrag.core.call_context import call_context, use_context
from typedrag.core.errors import InputError
from typedrag.core.events import AnswerStarted, AnswerToken, emit
from typedrag.core.proxies import find_proxy
from typedrag.core.redaction import Redactor, lm_keys
from typedrag.core.registry import NoDeepcopy
from typedrag.lms.adapter import beginnings_of, break_tokens, without_thoughts
from typedrag.lms.cost import charge_call
from typedrag.lms.refusals import refuses_stream, refuses_system_role, without_system_role
from typedrag.lms.replies import CALL_OBSERVER, in_event_loop
from typedrag.lms.threads import await_call, stop_if_cancelled
from typedrag.lms.trace import CallTracker, count_call
from typedrag.text.words import printable

if TYPE_CHECKING:
    from typedrag.lms.in_process import OfflineEngine

logger = logging.getLogger(__name__)

RETRIES = 3  # tries that follow a fault of the network or the server, unless an LM's settings say otherwise
RETRIES_AFTER_TIMEOUT = 1  # tries that follow a timeout: what hangs once mostly hangs again
LONGEST_WAIT = 60.0  # seconds between two tries, even if a server asks for more
_SPREAD = 0.25  # share of a wait by which it may be longer: calls that wait together would come back together
CALLS_IN_FLIGHT = 16  # LM calls of a process that run at once, unless `limit_calls_in_flight` says otherwise
_DSPY_TIMEOUT = 600.0  # seconds that DSPy's client waits for a reply where an LM has no timeout
_NOTICE_EVERY = 10.0
_TELL_EVERY = 0.05
"""Seconds between two events of a reply: reading it at each of its tokens would cost more than anything else."""
_ANSWER = "answer"
_MARKER = "[[ ##"
_ELSEWHERE = "https://elsewhere"  # stands for the address of a provider, which its client knows
_SAMPLING = frozenset({"temperature", "top_p", "top_k", "max_tokens"})


class RetryAfter:
    """Pauses that LM servers ask for by `Retry-After`: what one call is asked, all calls of the process keep.

    `on_set` is called with each pause that a server asks this process for; workers tell each other of them.
    """

    def __init__(self) -> None:
        self.on_set: Callable[[str, float], None] = lambda server, seconds: None
        self._until: dict[str, float] = {}

    def set(self, server: str, seconds: float, *, notify: bool = True) -> None:
        """Leave a server alone for so many seconds from now; a longer pause stays."""
        self._until[server] = max(self._until.get(server, 0.0), time.monotonic() + seconds)
        if notify:
            self.on_set(server, seconds)

    def remaining(self, server: str) -> float:
        return max(0.0, self._until.get(server, 0.0) - time.monotonic())

    @property
    def all_remaining(self) -> dict[str, float]:
        return {server: left for server in list(self._until) if (left := self.remaining(server))}


RETRY_AFTER = RetryAfter()  # the pauses of this process


class _CallsInFlight(NoDeepcopy, BaseCallback):
    """The process's slots for LM calls: threads of an evaluation times threads of a question would flood a server.

    A `Caller` takes a slot for each try, so that no wait between two tries holds one. Of LMs that LiteLLM calls, which
    tries again by itself, this is a callback.
    """

    def __init__(self, limit: int) -> None:
        self.slots = threading.Semaphore(limit)
        self._held: dict[str, threading.Semaphore] = {}

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        if in_event_loop():
            return  # waiting here would stop the very tasks that are to free a slot
        slots = self.slots
        slots.acquire()
        self._held[call_id] = slots

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        if slots := self._held.pop(call_id, None):
            slots.release()


IN_FLIGHT = _CallsInFlight(CALLS_IN_FLIGHT)


def limit_calls_in_flight(limit: int) -> None:
    if limit < 1:
        raise InputError(f"a limit of {limit} LM calls in flight allows none", "Use 1 or more")
    IN_FLIGHT.slots = threading.Semaphore(limit)


class LM(dspy.LM):
    """An LM of DSPy whose calls are made by a `Caller`; traces name it by its class, as they name DSPy's.

    Args:
        model: As DSPy names it.
        takes_sampling: If False, no temperature is sent to the LM, whoever sets one.
        in_process: The engine that makes the calls, in place of a server.
        control_tokens: Tokens of the LM, beside those of all chat templates, that no text may become.
        slots: Holds calls back that a server which answers few at once would let wait, as the time that they wait
            there counts to their timeout. Calls of an event loop are not held back.
        settings: Those of `dspy.LM`; `timeout` is the seconds that a try may take.
    """

    counts_calls = True

    def __init__(
        self,
        model: str,
        *,
        takes_sampling: bool = True,
        in_process: OfflineEngine | None = None,
        control_tokens: Sequence[str] = (),
        slots: threading.Semaphore | None = None,
        **settings: Any,
    ) -> None:
        retries = settings.pop("num_retries", RETRIES)
        client = {name: settings.pop(name) for name in CLIENT_KEYS & settings.keys()}
        maker = client if in_process is None else {"engine": in_process, "async_engine": in_process.awaited}
        lm = dspy.LM(model, **maker, num_retries=0, cache=False)
        caller = Caller(lm, retries, takes_sampling=takes_sampling, control_tokens=control_tokens, slots=slots)
        super().__init__(model, engine=caller, async_engine=AsyncCaller(caller), num_retries=0, **settings)
        self.kwargs |= client  # the caller uses these settings, but records and redaction look for them here

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        count_call()
        with nullcontext() if dspy.settings.send_stream is None or _can_send() else dspy.context(send_stream=None):
            return super().__call__(*args, **kwargs)

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        count_call()
        return await super().acall(*args, **kwargs)

    def copy(self, **settings: Any) -> dspy.LM:
        if "engine" in settings:
            return super().copy(**settings)
        if not self.engine.takes_sampling:
            settings = {name: value for name, value in settings.items() if name not in _SAMPLING}
        # dspy.LM's own would refuse the client's settings beside an engine
        copied: dspy.LM = dspy.BaseLM.copy(self, **settings)
        return copied

    def dump_state(self) -> dict[str, Any]:
        plain = dspy.LM(self.engine.lm.model, num_retries=0, cache=self.cache)
        plain.kwargs = dict(self.kwargs)
        state: dict[str, Any] = plain.dump_state()
        return state


def make_lm(model: str, settings: Mapping[str, Any], *, takes_sampling: bool = True) -> dspy.LM:
    """An `LM`, or DSPy's own where only LiteLLM carries the settings, such as `extra_body`, or takes a SOCKS proxy."""
    own = set(inspect.signature(dspy.LM.__init__).parameters) | CLIENT_KEYS | {"in_process", "control_tokens", "slots"}
    parameters = {name: value for name, value in settings.items() if name not in own}
    try:
        request_from_openai_chat({"model": "m", "messages": [{"role": "user", "content": "?"}], **parameters})
        only_litellm = find_proxy(settings.get("api_base") or _ELSEWHERE).startswith("socks")
    except UnsupportedFeatureError:
        only_litellm = True
    if only_litellm and "in_process" not in settings:
        return dspy.LM(model, engine="litellm", callbacks=[CALL_OBSERVER, IN_FLIGHT], **settings)
    return LM(model, takes_sampling=takes_sampling, callbacks=[CALL_OBSERVER], **settings)


class Caller(NoDeepcopy):
    """The engine of an `LM`, which makes a call by DSPy's own. It learns what its server does not know."""

    counts = True
    """True because its calls are charged as they are made; see `track_calls`."""

    def __init__(
        self,
        lm: dspy.LM,
        retries: int,
        *,
        takes_sampling: bool,
        control_tokens: Sequence[str] = (),
        slots: threading.Semaphore | None = None,
    ) -> None:
        self.lm, self.retries, self.takes_sampling = lm, retries, takes_sampling
        self._control = beginnings_of(control_tokens)
        self.slots = slots or nullcontext()
        self.server = f"{lm.model} at {lm.kwargs.get('api_base')}"
        self.noticed = -_NOTICE_EVERY
        self.streams = self.has_system_role = True

    # what DSPy knows of the model
    supports_function_calling = cached_property(lambda self: self.lm.supports_function_calling)
    supports_reasoning = cached_property(lambda self: self.lm.supports_reasoning)
    supports_response_schema = cached_property(lambda self: self.lm.supports_response_schema)
    supported_params = cached_property(lambda self: self.lm.supported_params)

    def complete(self, request: Request) -> Response:
        retries, tracker = _Retries(self), dspy.settings.usage_tracker
        followed = call_context().listener is not None
        while True:
            if retries.wait:
                time.sleep(retries.wait)
            try:
                with self.slots, IN_FLIGHT.slots, self.prepare(request) as (lm, sent):
                    return _note_end(tracker, self._await_reply(lm, sent) if followed else lm(sent))
            except dspy.LMError as error:
                if not retries.again(error):
                    raise

    def stream(self, request: Request) -> Iterator[StreamEvent]:
        """A reply once it is whole, for `dspy.streamify`; a program's own `stream` has it as it is written."""
        return _events(self.complete(request))

    def _await_reply(self, lm: dspy.LM, request: Request) -> Response:
        async def ask() -> Response:
            if not (self.streams and call_context().writes_answer):
                return await lm.acall(request)
            text = AnswerText(dspy.settings.lm)
            try:
                with dspy.context(send_stream=text):
                    reply = await lm.acall(request)
            except dspy.LMError as error:
                if text.begun or not refuses_stream(error):
                    raise
                self.streams = False
                return await lm.acall(request)
            text.emit_new()
            return reply

        return await_call(asyncio.run_coroutine_threadsafe(ask(), _loop(os.getpid())))

    @contextmanager
    def prepare(self, request: Request) -> Iterator[tuple[dspy.LM, Request]]:
        """An LM and a request for one try, hidden from DSPy's callbacks and trackers: they hear of the whole call."""
        lm = self.lm.copy(model=request.model)
        lm.update_history = _charge
        request = self._as_text(request)
        if not self.takes_sampling:
            request = replace(request, config=replace(request.config, temperature=None, top_p=None, top_k=None))
        if not self.has_system_role:
            request = without_system_role(request)
        if request.config.top_k and "top_k" not in self.supported_params:
            # OpenAI's API has no such field, and DSPy leaves it out; vLLM's and llama.cpp's server have one
            extensions = {**(request.config.extensions or {}), "top_k": request.config.top_k}
            request = replace(request, config=replace(request.config, top_k=None, extensions=extensions))
        with dspy.context(callbacks=[], usage_tracker=None, disable_history=False, send_stream=None):
            yield lm, request

    def _as_text(self, request: Request) -> Request:
        """The request without tokens of chat templates in its texts, which strangers may have written."""

        def safe_parts(parts: Iterable[Any]) -> tuple[Any, ...]:
            return tuple(
                replace(p, text=break_tokens(p.text, self._control)) if isinstance(p, TextPart) else p for p in parts
            )

        system = request.system
        if system is not None:
            system = break_tokens(system, self._control) if isinstance(system, str) else safe_parts(system)
        messages = tuple(replace(message, parts=safe_parts(message.parts)) for message in request.messages)
        return replace(request, system=system, messages=messages)


class AsyncCaller(NoDeepcopy):
    """The engine of an `LM` for an event loop."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def complete(self, request: Request) -> Response:
        retries, tracker = _Retries(self._caller), dspy.settings.usage_tracker
        while True:
            await asyncio.sleep(retries.wait)
            try:
                with self._caller.prepare(request) as (lm, sent):
                    return _note_end(tracker, await lm.acall(sent))
            except dspy.LMError as error:
                if not retries.again(error):
                    raise

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        for event in _events(await self.complete(request)):
            yield event


def _events(response: Response) -> Iterator[StreamEvent]:
    """The events of a whole reply, word by word, as DSPy's listeners find no field in a single piece."""
    # a reply that DSPy has read as data comes as its text: events have texts alone
    parts = (TextPart(data_part_text(p)) if isinstance(p, DataPart) else p for p in response.message.parts)
    for event in response_to_events(replace(response, message=replace(response.message, parts=tuple(parts)))):
        if isinstance(event, StreamDeltaEvent) and isinstance(event.delta, TextDelta):
            logprobs = event.delta.logprobs
            for piece in re.findall(r"\s*\S+|\s+", event.delta.text):
                yield replace(event, delta=replace(event.delta, text=piece, logprobs=logprobs))
                logprobs = ()
        else:
            yield event


class _Retries:
    """The tries of a call.

    A fault of the network or the server is followed by up to `Caller.retries` more tries, a timeout by
    `RETRIES_AFTER_TIMEOUT`. Each `wait` before the next is about `LONGEST_WAIT` at most, so that a call has an end.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._made = self._timed_out = 0
        self._has_system_role = caller.has_system_role
        self.wait = _spread(RETRY_AFTER.remaining(caller.server))

    def again(self, error: dspy.LMError) -> bool:
        caller, lm, retry_after = self._caller, self._caller.lm, error.retry_after
        if self._has_system_role and refuses_system_role(error):
            self._has_system_role = caller.has_system_role = False
            self.wait = 0.0
            return True
        self._made += 1
        if retry_after is not None:
            RETRY_AFTER.set(caller.server, min(retry_after, LONGEST_WAIT))
        timeout = f"no reply within {lm.kwargs.get('timeout') or _DSPY_TIMEOUT:g} s"
        # DSPy's client has no error of its own for a timeout, but its message says so
        if isinstance(error, dspy.LMTimeoutError) or (
            isinstance(error, dspy.LMTransportError) and "read timed out" in str(error)
        ):
            self._timed_out += 1
            if self._made > caller.retries or self._timed_out > RETRIES_AFTER_TIMEOUT:
                tries = f", in {self._made} tries" if self._made > 1 else ""
                raise dspy.LMTimeoutError(f"{timeout}{tries}", model=lm.model) from error
        retries = min(caller.retries, 1) if retry_after is not None and retry_after > LONGEST_WAIT else caller.retries
        if self._made > retries or not dspy.is_retryable_lm_error(error):
            return False
        wait = min(2.0 ** (self._made - 1) if retry_after is None else retry_after, LONGEST_WAIT)
        if (retry_after is not None or self._timed_out) and time.monotonic() > caller.noticed + _NOTICE_EVERY:
            caller.noticed = time.monotonic()
            reason = timeout if retry_after is None else f"its server asks to wait {retry_after:,.0f} s"
            logger.warning("LM '%s': %s; it is asked again in %.0f s", lm.model, reason, wait)
        self.wait = _spread(max(wait, RETRY_AFTER.remaining(caller.server)))
        return True


def _spread(seconds: float) -> float:
    return seconds * (1 + _SPREAD * random.random())


def _can_send() -> bool:
    """True if `dspy.streamify` has made this thread, and can be sent pieces; ours for parts of a question cannot."""
    try:
        anyio.from_thread.check_cancelled()
    except RuntimeError:
        return False
    return True


def _note_end(tracker: Any, response: Response) -> Response:
    if isinstance(tracker, CallTracker):
        tracker.finish_reason = response.finish_reason
    return response


def _charge(call: Mapping[str, Any]) -> None:
    cost, reply = call["cost"], call["response"]
    provider, _, model = call["model"].partition("/")
    # DSPy looks for none where LiteLLM made the call
    if cost is None and (_is_priced(provider, reply.model) or _is_priced(provider, model)):
        cost, _ = estimate_cost(reply, provider=provider, requested_model=model)
    charge_call({**call, "cost": cost})


@lru_cache
def _is_priced(provider: str, model: str) -> bool:
    """True if DSPy's table has the model's price; DSPy itself searches the whole table for a missing one."""
    return bool(model_info(provider, model))


def _read_usage(
    reported: Mapping[str, Any], read: Callable[[Any], ReportedUsage] = openai_chat._usage_from_chat
) -> ReportedUsage:
    try:
        return read(reported)
    except (AttributeError, TypeError, ValueError):
        return ReportedUsage()


# DSPy's client fails to read a reply whose usage has the wrong type, such as a text.
openai_chat._usage_from_chat = _read_usage


def stream_answer(predictor: dspy.Module) -> AbstractContextManager[None]:
    """Emit the answer's text within, if the predictor asks for the answer to the question and not to a part of it."""
    signature = getattr(predictor, "signature", None)
    context = call_context()
    streams = context.listener is not None and context.tokens_wanted and not context.part
    return use_context(writes_answer=streams and signature is not None and _ANSWER in signature.output_fields)


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:  # its thread does not come along to a process that is forked
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="typedrag-calls", daemon=True).start()
    return loop


class AnswerText:
    """Emits the text of the field `answer` while a reply is written: JSON, or fields behind DSPy's markers.

    Nothing is emitted if the LM says that the passages hold no answer, and never what may be the beginning of a key of
    the LM. DSPy sends it the pieces of a reply.
    """

    def __init__(self, lm: dspy.LM | None, emit: Callable[..., None] = emit, every: float = _TELL_EVERY) -> None:
        self._hide, self._emit, self._every = Redactor(lm_keys(lm)), emit, every
        self._reply = self._emitted = ""
        self._last = 0.0

    @property
    def begun(self) -> bool:
        return bool(self._reply)

    async def send(self, piece: Any) -> None:
        stop_if_cancelled()
        for choice in piece.choices:
            self.add(getattr(choice.delta, "content", None) or "")

    def add(self, piece: str) -> None:
        self._reply += piece
        if time.monotonic() >= self._last + self._every:
            self.emit_new()

    def emit_new(self) -> None:
        self._last = time.monotonic()
        text = self._hide(printable(_partial_answer(without_thoughts(self._reply)))).strip()
        text = text[: max(0, len(text) - self._hide.longest)]
        if self._emitted.startswith(text):
            return
        if not self._emitted or not text.startswith(self._emitted):
            self._emitted = ""
            self._emit(AnswerStarted)
        self._emit(AnswerToken, text=text[len(self._emitted) :])
        self._emitted = text


def _partial_answer(reply: str) -> str:
    """The answer as far as it is written; empty if the LM has said that there is none."""
    if _MARKER in reply:
        _, _, answered = reply.partition(f"{_MARKER} answered ## ]]")
        _, _, answer = reply.partition(f"{_MARKER} {_ANSWER} ## ]]")
        return "" if answered.strip().casefold().startswith("false") else answer.partition("[[")[0].rstrip("[")
    try:
        fields = from_json(reply[max(reply.find("{"), 0) :], allow_partial="trailing-strings")
    except ValueError:
        return ""
    written = fields.get(_ANSWER) if isinstance(fields, dict) and fields.get("answered") is not False else None
    return written if isinstance(written, str) else ""
