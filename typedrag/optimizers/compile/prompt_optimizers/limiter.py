"""Stops a compile at once where a limit is reached or the system fails.

DSPy's optimizers run programs in threads, and take most exceptions for a failed example that scores
0. So a compile is ended by a `BaseException` that is no `Exception`: it passes through the optimizers
in whatever thread it is raised, and the limiter that raises it lets no further LM call pass.
"""

import threading
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import LMUnsupportedFeatureError

from typedrag.core.call_context import set_context
from typedrag.core.errors import CallFailed, LMUnavailable, RetrievalError
from typedrag.core.registry import NoDeepcopy
from typedrag.files.text_files import Journal
from typedrag.lms.asking import unavailable_error
from typedrag.lms.cost import CostTracker, Spending
from typedrag.runs import Progress, Stopper
from typedrag.runs.work import FailureTracker


class Stopped(BaseException):
    """Ends a compile; never leaves `compile_module`."""


class LimitReached(Stopped):
    """A limit of the compile is reached."""


class Faulted(Stopped):
    """The system failed: an LM, the index, or the metric; `error` is what `compile_module` raises for it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Ledger(CostTracker):
    """An account in a file, a line for each LM call, that survives a kill of the process."""

    def __init__(self, path: Path) -> None:
        super().__init__(read_spending(path))
        self._journal = Journal(path)

    def add(self, spending: Spending) -> None:
        super().add(spending)
        self._journal.append(spending.to_dict())


def read_spending(path: Path) -> Spending:
    return sum(map(Spending.from_dict, Journal(path)), Spending())


class CallLimiter(NoDeepcopy, BaseCallback):
    """Lets LM calls pass until there is a reason to stop, then none.

    It is a DSPy callback for the setting `callbacks`, which DSPy hands to all threads. Calls with a stored
    reply cost nothing; for the others, the `ReplyStore` asks the limiter.
    """

    def __init__(self, stop: Stopper, account: CostTracker) -> None:
        self._stop = stop
        self.account = account
        self._changed = threading.Condition()
        self._under_way: dict[str, int] = {}
        """The number of paid replies of each call under way, by the call's id: 0 if its reply is stored."""
        self.stopped: Stopped | None = None
        """Why it lets no call pass; None while it does."""
        self.faults = FailureTracker()
        """Failures of LMs since one has answered."""

    def close(self, reason: Stopped) -> None:
        """Let no further call pass; the first reason is kept."""
        with self._changed:
            self.stopped = self.stopped or reason
            self._changed.notify_all()

    def close_with_fault(self, error: Exception) -> Faulted:
        """Close for a fault of the system; return the exception for the caller to raise."""
        self.close(Faulted(error))
        return Faulted(error)

    def record_failure(self, failure: CallFailed) -> None:
        """Count a failed example, and close if the LM fails at one after the other."""
        with self._changed:
            self.faults.defer(failure)
        if self.faults.fault:
            raise self.close_with_fault(failure) from failure

    def acquire(self, call_id: str, replies: int = 1) -> None:
        """Count a call against the limits before it is made; each of its replies counts as an LM call."""
        with self._changed:
            self._check_open()
            while True:
                paid = sum(self._under_way.values())
                reason = self._stop(Progress(spent=self.account.spent, calls_ahead=paid + replies - 1))
                if not reason:
                    break
                if not paid:
                    self.stopped = LimitReached(reason)
                    self._changed.notify_all()
                    raise LimitReached(reason)
                self._changed.wait()  # calls under way may still fail, at no cost; while a call ends it counts twice
                self._check_open()
            self._under_way[call_id] = replies

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        with self._changed:
            self._check_open()
            self._under_way[call_id] = 0
        set_context(permit=partial(self.acquire, call_id))
        if not (isinstance(instance, dspy.LM) and instance.cache):  # its replies are not stored
            try:
                self.acquire(call_id)
            except Stopped:
                self._end(call_id)
                raise

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Note the end of a call, and close if the LM cannot be used; raise nothing, so that later callbacks run."""
        self._end(call_id)
        if exception is None:
            with self._changed:
                self.faults.on_success()
        if isinstance(exception, LMUnsupportedFeatureError):
            return  # DSPy's adapters ask again in another way
        fault = unavailable_error(exception) if isinstance(exception, Exception) else None
        if fault and not isinstance(fault, CallFailed):
            self.close(Faulted(fault))

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        with self._changed:
            self._check_open()

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Close if a module met a fault of the system, since DSPy takes it for a failed example."""
        if isinstance(exception, CallFailed):
            self.record_failure(exception)
        elif isinstance(exception, LMUnavailable | RetrievalError):
            raise self.close_with_fault(exception) from exception
        elif exception is not None:
            with self._changed:
                self._check_open()

    def end(self) -> None:
        """Close in the end, and wait for calls that have passed: replies to DSPy's last threads count."""
        self.close(Stopped("the compile has ended"))
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)

    def _check_open(self) -> None:
        if self.stopped is not None:
            raise copy(self.stopped)  # threads must not share an exception

    def _end(self, call_id: str) -> None:
        with self._changed:
            self._under_way.pop(call_id, None)
            self._changed.notify_all()
        set_context(permit=None)
