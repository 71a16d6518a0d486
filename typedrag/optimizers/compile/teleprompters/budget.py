"""Limits of LM calls and tokens for a compile, and the gate that stops it at once.

DSPy's optimizers run programs in threads, and take most exceptions for a failed example that scores
0. So a compile is ended by a `BaseException` that is no `Exception`: it passes through the optimizers
in whatever thread it is raised, and the gate that raises it lets no further LM call pass.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import dspy
from dspy.utils.callback import BaseCallback
from dspy.utils.exceptions import LMUnsupportedFeatureError
from pydantic import BaseModel, ConfigDict, PositiveInt

from typedrag.call_context import set_context
from typedrag.errors import CallFailed, LMUnavailable, RetrievalError
from typedrag.files.journal import Journal
from typedrag.lms.asking import unavailable_error
from typedrag.lms.cost import CostTracker, Spending
from typedrag.runs.failures import FailureTracker
from typedrag.sharing import Shared

BudgetName = Literal["light", "medium", "heavy"]
BUDGET_NAMES: tuple[BudgetName, ...] = get_args(BudgetName)


class Budget(BaseModel):
    """The limits of a compile, over all LMs together: the task's, the teacher, the prompt model and judges."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lm_calls: PositiveInt | None = None
    """The most LM calls, which is never passed; None for no limit."""
    tokens: PositiveInt | None = None
    """The most tokens, read and written; calls under way when it is reached still end. None for no limit."""

    NAMED: ClassVar[dict[BudgetName, int]] = {"light": 3_000, "medium": 12_000, "heavy": 50_000}
    """LM calls by name. `light` is enough for a dozen candidates on 50 questions, at five calls each."""

    @classmethod
    def named(cls, name: BudgetName) -> Budget:
        """The budget with this name.

        Example:
            >>> Budget.named("light")
            Budget(lm_calls=3000, tokens=None)
        """
        return cls(lm_calls=cls.NAMED[name])

    def forbids(self, spent: Spending, under_way: int = 0, calls_ahead: int = 1) -> str:
        """The limit that further LM calls would pass, in words; empty if they may be made.

        Args:
            spent: The cost so far.
            under_way: LM calls that have begun and are not in `spent`.
            calls_ahead: LM calls to be made.

        Example:
            >>> from typedrag.records import Usage
            >>> Budget(lm_calls=10).forbids(Spending(Usage(8, 900, 100)), under_way=2)
            '8 LM calls are made and 2 under way of the 10 allowed'
        """
        calls = spent.usage.lm_calls
        if self.lm_calls is not None and calls + under_way + calls_ahead > self.lm_calls:
            more = f" and {under_way:,} under way" if under_way else ""
            return f"{calls:,} LM calls are made{more} of the {self.lm_calls:,} allowed"
        if self.tokens is not None and spent.tokens >= self.tokens:
            return f"{spent.tokens:,} tokens are spent of the {self.tokens:,} allowed"
        if self.tokens is not None and spent.usage.uncounted:
            return f"a limit of tokens cannot be kept, after {spent.usage.in_words()}"
        return ""


class Stopped(BaseException):
    """Ends a compile; never leaves `compile_module`."""


class BudgetSpent(Stopped):
    """A limit of the budget is reached."""


class Faulted(Stopped):
    """The system failed: an LM, the index, or the metric.

    Args:
        error: The error that `compile_module` raises for it.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Ledger(CostTracker):
    """An account in a file, a line for each LM call, that survives a kill of the process.

    Args:
        path: The file, made if need be; its lines are earlier costs.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(spent_by(path))
        self._journal = Journal(path)

    def add(self, spending: Spending) -> None:
        """Add a cost to the account and to the file."""
        super().add(spending)
        self._journal.append(spending.to_dict())


def spent_by(path: Path) -> Spending:
    """The sum of the spending in a ledger's file."""
    return sum(map(Spending.from_dict, Journal(path)), Spending())


class Gate(Shared, BaseCallback):
    """Lets LM calls pass until the budget is spent or the system fails, then none.

    It is a DSPy callback for the setting `callbacks`, which DSPy hands to all threads. Calls with a stored
    reply cost nothing; for the others, the `ReplyStore` asks the gate.
    """

    def __init__(self, budget: Budget, account: CostTracker) -> None:
        self.budget = budget
        self.account = account
        self._changed = threading.Condition()
        self._under_way: dict[str, int] = {}
        """The number of paid replies of each call under way, by the call's id: 0 if its reply is stored."""
        self.stopped: Stopped | None = None
        """Why the gate is closed; None while it is open."""
        self.faults = FailureTracker()
        """Failures of LMs since one has answered."""

    def close(self, reason: Stopped) -> None:
        """Let no further call pass; the first reason is kept."""
        with self._changed:
            self.stopped = self.stopped or reason
            self._changed.notify_all()

    def fail(self, error: Exception) -> Faulted:
        """Close for a fault of the system; return the exception for the caller to raise."""
        self.close(Faulted(error))
        return Faulted(error)

    def bear(self, fault: CallFailed) -> None:
        """Count a failed example, and close if the LM fails at one after the other.

        Raises:
            Faulted: If the LM fails at one after the other.
        """
        with self._changed:
            self.faults.defer(fault)
        if self.faults.fault:
            raise self.fail(fault) from fault

    def wait(self) -> None:
        """Wait until no LM call is under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)

    def pay(self, call_id: str, replies: int = 1) -> None:
        """Count a call against the budget before it is made; each of its replies counts as an LM call.

        Raises:
            Stopped: If the gate is closed, or the budget is spent.
        """
        with self._changed:
            self._pass()
            while reason := self.budget.forbids(self.account.spent, self._paid, replies):
                if not self._paid:
                    self.stopped = BudgetSpent(reason)
                    self._changed.notify_all()
                    raise BudgetSpent(reason)
                self._changed.wait()  # calls under way may still fail, at no cost; while a call ends it counts twice
                self._pass()
            self._under_way[call_id] = replies

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Refuse a call if the gate is closed, else note it as under way."""
        with self._changed:
            self._pass()
            self._under_way[call_id] = 0
        set_context(permit=partial(self.pay, call_id))
        if not (isinstance(instance, dspy.LM) and instance.cache):  # its replies are not stored
            try:
                self.pay(call_id)
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
        """Refuse modules once the gate is closed: DSPy leaves threads behind that still run examples."""
        with self._changed:
            self._pass()

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Close if a module met a fault of the system, since DSPy takes it for a failed example."""
        if isinstance(exception, CallFailed):
            return self.bear(exception)
        if isinstance(exception, LMUnavailable | RetrievalError):
            raise self.fail(exception) from exception
        if exception is not None:
            with self._changed:
                self._pass()
        return None

    @property
    def _paid(self) -> int:
        return sum(self._under_way.values())

    def _pass(self) -> None:
        if self.stopped is not None:
            raise copy(self.stopped)  # threads must not share an exception

    def _end(self, call_id: str) -> None:
        with self._changed:
            self._under_way.pop(call_id, None)
            self._changed.notify_all()
        set_context(permit=None)


@contextmanager
def closing(gate: Gate) -> Iterator[None]:
    """Close a gate in the end, and wait for calls that have passed it: replies to DSPy's last threads count."""
    try:
        yield
    finally:
        gate.close(Stopped("the compile has ended"))
        gate.wait()
