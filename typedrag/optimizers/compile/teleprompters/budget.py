"""LM calls and tokens after which a compile stops, and how it stops at once.

DSPy's optimizers run programs in threads, and take most exceptions for a failed example that scores
0. What ends a compile is therefore no `Exception`: it passes through all of them, whatever thread
it is raised in, and the gate that raises it lets no further LM call pass.
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

from typedrag.errors import CallFailed, LMUnavailable, RetrievalError
from typedrag.files.journal import Journal
from typedrag.lms.asking import unavailable
from typedrag.lms.faults import Faults
from typedrag.lms.replies import permission
from typedrag.lms.spending import Account, Spending

BudgetName = Literal["light", "medium", "heavy"]
BUDGET_NAMES: tuple[BudgetName, ...] = get_args(BudgetName)


class Budget(BaseModel):
    """What a compile may ask of LMs: of the one compiled for, the teacher, the prompt model and judges alike."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lm_calls: PositiveInt | None = None
    """Of all of them; none if there is no limit. Never passed."""
    tokens: PositiveInt | None = None
    """Read and written. The calls that are under way when it is reached still end."""

    NAMED: ClassVar[dict[BudgetName, int]] = {"light": 3_000, "medium": 12_000, "heavy": 50_000}
    """LM calls. Light answers and judges 50 questions with a dozen candidates of five calls each."""

    @classmethod
    def named(cls, name: BudgetName) -> Budget:
        """The one of this name.

        Example:
            >>> Budget.named("light")
            Budget(lm_calls=3000, tokens=None)
        """
        return cls(lm_calls=cls.NAMED[name])

    def forbids(self, spent: Spending, under_way: int = 0, wanted: int = 1) -> str:
        """Which limit further LM calls would pass and how; empty if they may be made.

        Args:
            spent: So far.
            under_way: LM calls that have begun and are not in it.
            wanted: LM calls that are to be made.

        Example:
            >>> Budget(lm_calls=10).forbids(Spending(Usage(8, 900, 100)), under_way=2)
            '8 LM calls are made and 2 under way of the 10 allowed'
        """
        calls = spent.usage.lm_calls
        if self.lm_calls is not None and calls + under_way + wanted > self.lm_calls:
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
        error: What `compile_module` raises for it.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Ledger(Account):
    """An account that is kept in a file, a line for each LM call, also if the process is killed.

    Args:
        path: Made if need be; what it holds was spent before.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(spent_by(path))
        self._journal = Journal(path)

    def add(self, spending: Spending) -> None:
        """Add to it, and to the file."""
        super().add(spending)
        self._journal.append(spending.to_dict())


def spent_by(path: Path) -> Spending:
    """What the file of a `Ledger` says."""
    return sum(map(Spending.from_dict, Journal(path)), Spending())


class Gate(BaseCallback):
    """Lets LM calls pass until the budget is spent or something has failed, then none.

    It is a DSPy callback and belongs into the setting `callbacks`, which DSPy hands to all threads.
    Calls whose replies are kept cost nothing: `Replies` asks the gate's permission for the others.
    """

    def __init__(self, budget: Budget, account: Account) -> None:
        self.budget = budget
        self.account = account
        self._changed = threading.Condition()
        self._under_way: dict[str, int] = {}
        """Calls by id, from their begin to their end; each as how many it counts: as none if its reply is kept."""
        self.stopped: Stopped | None = None
        """Why it is closed."""
        self.faults = Faults()
        """What LMs failed at since one has answered."""

    def close(self, reason: Stopped) -> None:
        """Let no further call pass. The first reason counts."""
        with self._changed:
            self.stopped = self.stopped or reason
            self._changed.notify_all()

    def fail(self, error: Exception) -> Faulted:
        """Close for a fault of the system; gives what the caller raises."""
        self.close(Faulted(error))
        return Faulted(error)

    def bear(self, fault: CallFailed) -> None:
        """Leave it at a failed example, unless the LM fails at one after the other.

        Raises:
            Faulted: If it does.
        """
        with self._changed:
            self.faults.hold(fault)
        if self.faults.fault:
            raise self.fail(fault) from fault

    def wait(self) -> None:
        """Until no LM call is under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)

    def pay(self, call_id: str, replies: int = 1) -> None:
        """Count a call that has begun against the budget before it is made; each of its replies is an LM call.

        Raises:
            Stopped: If no call passes any more.
        """
        with self._changed:
            self._pass()
            while reason := self.budget.forbids(self.account.spent, self._paid, replies):
                if not self._paid:
                    self.stopped = BudgetSpent(reason)
                    self._changed.notify_all()
                    raise BudgetSpent(reason)
                self._changed.wait()  # a call may fail, which costs nothing, and counts twice while it ends
                self._pass()
            self._under_way[call_id] = replies

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Refuse it, or remember it."""
        with self._changed:
            self._pass()
            self._under_way[call_id] = 0
        permission.set(partial(self.pay, call_id))
        if not (isinstance(instance, dspy.LM) and instance.cache):  # its replies are not kept
            try:
                self.pay(call_id)
            except Stopped:
                self._end(call_id)
                raise

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Forget it, and close if the LM cannot be used; raises nothing, since the LM's own callbacks come after it."""
        self._end(call_id)
        if exception is None:
            with self._changed:
                self.faults.answer()
        if isinstance(exception, LMUnsupportedFeatureError):
            return  # DSPy's adapters ask again in another way
        fault = unavailable(exception) if isinstance(exception, Exception) else None
        if fault and not isinstance(fault, CallFailed):
            self.close(Faulted(fault))

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Begin nothing once it is closed: DSPy leaves threads behind, with examples that are still to be run."""
        with self._changed:
            self._pass()

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Close if a module met a fault of the system, which DSPy would take for a failed example."""
        if isinstance(exception, CallFailed):
            return self.bear(exception)
        if isinstance(exception, LMUnavailable | RetrievalError):
            raise self.fail(exception) from exception
        if exception is not None:
            with self._changed:
                self._pass()
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> Gate:
        return self

    @property
    def _paid(self) -> int:
        return sum(self._under_way.values())

    def _pass(self) -> None:
        if self.stopped is not None:
            raise copy(self.stopped)  # one for each thread

    def _end(self, call_id: str) -> None:
        with self._changed:
            self._under_way.pop(call_id, None)
            self._changed.notify_all()
        permission.set(None)


@contextmanager
def closing(gate: Gate) -> Iterator[None]:
    """Close a gate in the end, and wait for the calls that have passed it: what DSPy's threads still hear counts."""
    try:
        yield
    finally:
        gate.close(Stopped("the compile has ended"))
        gate.wait()
