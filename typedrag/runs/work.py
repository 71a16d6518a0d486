"""The loop over the items of a run: in threads, with results that are kept as they come."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from typedrag.core.errors import CallFailed, InputError, NotMeasurable, StepFailed
from typedrag.lms.cost import CostTracker, track_cost
from typedrag.lms.threads import run_jobs
from typedrag.runs.failures import FailureTracker, fail
from typedrag.runs.stop import Progress, Stopper
from typedrag.runs.store import Result, Store

Do = Callable[[str, str, Any], Any]
"""A step on an item: takes the item's id, the step's name, and the value of the item's first step, which is None in the
first step itself; returns a JSON value."""


@dataclass(frozen=True)
class Outcome:
    """The end of a run.

    Attributes:
        stopped: Why work was left undone; empty if none is left.
        progress: The progress in the end.
    """

    stopped: str
    progress: Progress


def work(
    items: Iterable[str],
    do: Do,
    store: Store,
    *,
    steps: Sequence[str],
    threads: int,
    stop: Stopper = lambda progress: "",
    listener: Callable[[Progress], object] = lambda progress: None,
    account: CostTracker | None = None,
    failures: FailureTracker | None = None,
    name: str = "",
) -> Outcome:
    """Take the steps on items whose results the store lacks, unless there is a reason to stop.

    The first step of an item comes before its others, which need its value. Further steps come before new items, so
    that few items are half done when the run stops. A step that raises a `NotMeasurable` is skipped; an `InputError`, a
    `StepFailed` or a `CallFailed` is its failure, the last only if the LM goes on to answer others. Threads carry the
    caller's context.

    Args:
        items: Their ids, in the order in which they are begun.
        do: Takes a step.
        store: Has the earlier results, and gets the new ones before the listener hears of them.
        steps: The names of all steps.
        threads: Steps under way at once.
        stop: Asked before each step.
        listener: Called at the beginning, after each result and at the end, in the caller's thread.
        account: The spending that `stop` goes by, to which this run's is added; by default that of the store.
        failures: The LM's failures in a larger run that these items belong to, whose caller finishes it; by default
            each step has one of its own, which is finished here.
        name: The run's name, for the listener.

    Raises:
        LMUnavailable: If the LM fails at one item after the other; these are left to be tried again.
        BaseException: The first other error of a step, or a signal's, once what was under way is kept.
    """
    job = _Work(items, do, store, steps, stop, listener, account or CostTracker(store.read().spent), failures, name)
    return job.run(threads)


class _Work:
    def __init__(
        self,
        items: Iterable[str],
        do: Do,
        store: Store,
        steps: Sequence[str],
        stop: Stopper,
        listener: Callable[[Progress], object],
        account: CostTracker,
        failures: FailureTracker | None,
        name: str,
    ) -> None:
        self.do, self.store, self.steps, self.stop, self.listener = do, store, steps, stop, listener
        self.account, self.name = account, name
        self.steps_done, self.stopped = 0, ""
        self.tried: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.problems: dict[str, str] = {}
        self.settles = failures is None
        self.faults = {step: FailureTracker() if failures is None else failures for step in steps}
        self.begun: deque[tuple[str, str, Any]] = deque()
        self.held: dict[str, dict[str, Result]] = {}
        for result in store.read().results:
            self.held.setdefault(result.item, {})[result.step] = result
        todo = list(items)
        self.planned = len(todo)
        self.new = iter([item for item in todo if steps[0] not in self.held.get(item, {})])
        for item in todo:
            results = self.held.get(item, {})
            for step in steps:
                if step in results:
                    self._count(results[step])

    def run(self, threads: int) -> Outcome:
        self._tell(None)
        with track_cost(self.account):
            for count in run_jobs(self._next_job, threads):
                self._tell(count())
        for step, faults in self.faults.items() if self.settles else ():
            held = Counter({step: len(faults)})
            as_failures = replace(self._progress(), tried=self.tried + held, failures=self.failed + held)
            faults.finish(too_many=not self.stopped and bool(self.stop(as_failures)))
        self._tell(None)
        left = self.begun or list(self.new)
        return Outcome(self.stopped if left else "", self._progress())

    def _next_job(self) -> Callable[[], Callable[[], Result | None]] | None:
        self.stopped = self.stopped or self.stop(self._progress())
        if self.stopped:
            return None
        if self.begun:
            job = partial(self._take, *self.begun.popleft())
        elif (new := next(self.new, None)) is not None:
            job = partial(self._take, new, self.steps[0], None)
        else:
            return None
        fault = next((held.fault for held in self.faults.values() if held.fault), None)
        return partial(fail, fault) if fault else job

    def _take(self, item: str, step: str, first: Any) -> Callable[[], Result | None]:
        """Take a step, in a thread; returns what the caller's thread does then."""
        result, fault = Result(item, step), None
        with track_cost(CostTracker()) as account:
            try:
                result = replace(result, value=self.do(item, step, first))
            except NotMeasurable as reason:
                result = replace(result, problem=str(reason), skipped=True)
            except (InputError, StepFailed) as failure:
                result = replace(result, problem=str(failure))
            except CallFailed as failure:
                fault, result = failure, replace(result, problem=str(failure))
        result = replace(result, spent=account.spent)
        if fault:  # it fails the item only once it is known not to be the LM's own fault
            return partial(self._hold, fault, result)
        self.store.add(result)
        return partial(self._count, result)

    def _hold(self, fault: CallFailed, result: Result) -> None:
        def keep() -> None:
            self.store.add(result)
            self._tell(self._count(result))

        self.faults[result.step].defer(fault, keep)

    def _count(self, result: Result) -> Result:
        """Count a result, and let the steps begin that wait for it and were not taken before."""
        self.steps_done += 1
        if not result.skipped:
            self.tried[result.step] += 1
        if result.failed:
            self.failed[result.step] += 1
            self.problems[result.step] = result.problem
        elif not result.skipped:
            self.faults[result.step].on_success()
        if result.step == self.steps[0]:
            left = [step for step in self.steps[1:] if step not in self.held.get(result.item, {})]
            if result.problem:
                self.steps_done += len(left)  # they need what it did not give
            else:
                self.begun.extend((result.item, step, result.value) for step in left)
        return result

    def _progress(self, result: Result | None = None) -> Progress:
        return Progress(
            self.name, self.steps_done / len(self.steps), self.planned, self.account.spent,
            dict(self.tried), dict(self.failed), self.problems, result,
        )  # fmt: skip

    def _tell(self, result: Result | None) -> None:
        self.listener(self._progress(result))
