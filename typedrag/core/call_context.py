"""The state of a call, in one context variable: it belongs to the question that is being answered.

Modules stay stateless, and strategies need not pass it on. Threads see it that run a function by `carry`.
"""

import contextvars
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from typedrag.core.records import Step

T = TypeVar("T")


class Budget:
    """LM calls or tokens that are left, whichever thread takes them."""

    def __init__(self, left: int) -> None:
        self.left = left
        self._lock = threading.Lock()

    def take(self, reserved: int) -> bool:
        """Take one call, if more are left than are reserved; True if it was taken."""
        with self._lock:
            allowed = self.left > reserved
            self.left -= allowed
            return allowed

    def spend(self, amount: int) -> None:
        with self._lock:
            self.left -= amount


@dataclass
class Replays:
    """Seconds that LM calls first took and that their kept replies saved."""

    seconds: float = 0.0


class CallContext(NamedTuple):  # it is copied at each step, which takes a dataclass four times as long
    """The state of a call; see the functions that use it."""

    steps: list[Step] | None = None
    """The innermost list that steps are recorded in."""
    lm_calls: Budget | None = None
    reserved: int = 0
    """LM calls of the budget that later steps need."""
    tokens: Budget | None = None
    replays: Replays | None = None
    outcome: Any = None
    """Whether the LM has answered or refused the question's calls."""
    discreet: bool = False
    """True if reports leave out the words of servers."""
    labels: Mapping[str, Any] = MappingProxyType({})
    """Those that a dataset has for the question. Only conditions of an experiment read them: an ideal context needs the
    gold passages, an oracle the right type."""
    listener: Callable[[Any], None] | None = None
    tokens_wanted: bool = True
    """True if the listener wants the answer's text while it is written."""
    writes_answer: bool = False
    part: str = ""
    task: Any = None
    """The task that waits for this thread."""
    permit: Callable[[int], None] | None = None
    """Called with the number of replies before an LM call that is to be paid; raises if it may not be made."""
    timeout: float | None = None
    """Seconds for each try of an LM call, in the place of the LM's own."""
    replies: list[str] | None = None
    """The keys of the kept replies of a step, to be forgotten if none can be read."""
    fresh: bool = False
    """True if no kept reply may answer an LM call."""
    request: Any = None
    """The server's line in its log, of the request that first asked the question."""


_current: ContextVar[CallContext] = ContextVar("call_context", default=CallContext())  # noqa: B039, as it never changes


def call_context() -> CallContext:
    return _current.get()


def set_context(**changes: Any) -> None:
    """Change the state for the rest of the current `use_context`."""
    _current.set(_current.get()._replace(**changes))


def use_context(**changes: Any) -> AbstractContextManager[None]:
    return _Changed(changes)


class _Changed(AbstractContextManager[None]):  # a generator would take twice as long, several times in each LM call
    def __init__(self, changes: dict[str, Any]) -> None:
        self._changes = changes

    def __enter__(self) -> None:
        self._token = _current.set(_current.get()._replace(**self._changes))

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def carry(function: Callable[..., T]) -> Callable[..., T]:
    """The function, to be called once in another thread, with the state of this call and DSPy's settings."""
    return partial(contextvars.copy_context().run, function)
