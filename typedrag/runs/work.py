"""The loop over the items of a run: in threads, with results that are kept as they come, and reasons to stop it."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

from typedrag.core.errors import CallFailed, InputError, NotMeasurable, StepFailed, TypedRAGError
from typedrag.lms.cost import PRICES, CostTracker, Spending, format_dollars, track_cost
from typedrag.lms.threads import run_jobs
from typedrag.runs.folder import Result, Store

T = TypeVar("T")
R = TypeVar("R")

ENOUGH = 10
"""Results of a step after which the share of failures is looked at."""
IN_A_ROW = 5
"""Consecutive items that an LM fails at before it is taken to be out of use."""


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        run: Its name.
        done: The items that are done; one of whose steps some are done counts in part.
        planned: The items of the whole run.
        spent: What counts against limits: the cost of this run so far, and perhaps of others.
        tried: The number of results by step, without those that were skipped.
        failures: The number of failed ones among them.
        problems: The problem of the last failure, by step.
        result: The result that was kept just now; None at the beginning and at the end.
        calls_ahead: LM calls that are under way, or come with the next step, and are not in `spent`.
    """

    run: str = ""
    done: float = 0.0
    planned: int = 0
    spent: Spending = field(default_factory=Spending)
    tried: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    result: Result | None = None
    calls_ahead: int = 0

    @property
    def failed(self) -> int:
        return sum(self.failures.values())


class Stopper(Protocol):
    """Tells why a run is to stop; calls under way still end."""

    def __call__(self, progress: Progress) -> str:
        """The reason in words; empty if there is none."""


@dataclass(frozen=True)
class Limits:
    """Stop at the first limit that is reached: tokens, LM calls or dollars spent, or minutes since this was made."""

    tokens: int | None = None
    lm_calls: int | None = None
    cost: float | None = None
    minutes: float | None = None
    began: float = field(default_factory=time.monotonic)

    def __call__(self, progress: Progress) -> str:
        spent, calls, passed = progress.spent, progress.spent.usage.lm_calls, (time.monotonic() - self.began) / 60
        if self.tokens is not None:
            if spent.tokens >= self.tokens:
                return f"{spent.tokens:,} tokens are spent of the {self.tokens:,} allowed"
            if spent.usage.uncounted:
                return f"a cap of tokens cannot be kept, after {spent.usage.in_words()}"
        if self.lm_calls is not None and calls + progress.calls_ahead >= self.lm_calls:
            return f"{calls:,} LM calls are made of the {self.lm_calls:,} allowed"
        if self.cost is not None:
            if spent.dollars >= self.cost:
                return f"{format_dollars(spent.dollars)} are spent of the {format_dollars(self.cost)} allowed"
            if spent.unpriced:
                return (
                    f"a cap of cost cannot be kept, since the price of an LM in use is not known: give it in {PRICES}"
                )
        if self.minutes is not None and passed >= self.minutes:
            return f"{passed:.1f} minutes have passed of the {self.minutes:g} allowed"
        return ""


@dataclass(frozen=True)
class MaxFailures:
    """Stop where a larger share of a step's results fails, once some were tried; `names` are those of results by step,
    for the reason, by default the step's own."""

    share: float
    names: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, progress: Progress) -> str:
        for step, failed in progress.failures.items():
            if (tried := progress.tried[step]) >= ENOUGH and failed / tried > self.share:
                what, last = self.names.get(step, step), progress.problems.get(step, "")
                return f"{failed} of {tried} {what} failed, where {self.share:.0%} are allowed; the last: {last}"
        return ""


class AnyOf:
    """Stop for the first reason that there is."""

    def __init__(self, *stoppers: Stopper) -> None:
        self._stoppers = stoppers

    def __call__(self, progress: Progress) -> str:
        return next((reason for stopper in self._stoppers if (reason := stopper(progress))), "")


Do = Callable[[str, str, Any], Any]
"""A step on an item: takes the item's id, the step's name, and the value of the item's first step, which is None in the
first step itself; returns a JSON value."""
Listener = Callable[[Progress], object]
Failed: TypeAlias = StepFailed | CallFailed | InputError | NotMeasurable
"""The reason why an item has no result."""


class Outcome(NamedTuple):
    """The end of a run: why work was left undone, empty if none is left, and the progress in the end."""

    stopped: str
    progress: Progress


def ignore_progress(progress: Progress) -> None:
    """The listener that shows nothing."""


class FailureTracker:
    """Failures that are deferred until it is known whether an item or the LM caused them.

    If the LM still answers other items, each is kept as its item's failure. If the LM fails at one item after the
    other, the LM is at fault, and the items are left to be tried again.

    Example:
        >>> kept: list[str] = []
        >>> failures = FailureTracker()
        >>> failures.defer(CallFailed("too slow"), lambda: kept.append("q1"))
        >>> failures.on_success()
        >>> kept
        ['q1']
    """

    def __init__(self) -> None:
        self._deferred: list[tuple[CallFailed, Callable[[], None]]] = []
        self._answered = False

    def defer(self, fault: CallFailed, keep: Callable[[], None] = lambda: None) -> None:
        """Defer a failure; `keep` makes it the item's."""
        if not self._deferred or self._deferred[-1][0] is not fault:  # each module that it passes through defers it
            self._deferred.append((fault, keep))

    def on_success(self) -> None:
        self._answered = True
        deferred, self._deferred = self._deferred, []
        for _, keep in deferred:
            keep()

    def __len__(self) -> int:
        return len(self._deferred)

    @property
    def fault(self) -> CallFailed | None:
        """The reason to ask nothing more; None if there is none."""
        return self._deferred[-1][0] if len(self._deferred) >= IN_A_ROW else None

    def finish(self, *, too_many: bool = False) -> None:
        """Decide about the failures still deferred at the end of a run; `too_many` where more than are allowed."""
        if self._deferred and (too_many or not self._answered):
            raise self._deferred[-1][0]
        self.on_success()


def work(
    items: Iterable[str],
    do: Do,
    store: Store,
    *,
    steps: Sequence[str],
    threads: int,
    stop: Stopper | None = None,
    listener: Listener = ignore_progress,
    account: CostTracker | None = None,
    failures: FailureTracker | None = None,
    name: str = "",
) -> Outcome:
    """Take the steps on items whose results the store lacks, unless there is a reason to stop.

    The first step of an item comes before its others, which need its value. Further steps come before new items, so
    that few items are half done when the run stops. A step that raises a `NotMeasurable` is skipped; an `InputError`, a
    `StepFailed` or a `CallFailed` is its failure, the last only if the LM still answers others. If the LM fails at
    one item after the other, its `LMUnavailable` is raised, and these items are left to be tried again. Any other error
    of a step, or a signal's, is raised once what was under way is kept. Threads carry the caller's context.

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
    """
    account = account or CostTracker(store.read().spent)
    return _Work(list(items), do, store, steps, stop or AnyOf(), listener, account, failures, name).run(threads)


@dataclass
class _Work:
    items: list[str]
    do: Do
    store: Store
    steps: Sequence[str]
    stop: Stopper
    listener: Listener
    account: CostTracker
    failures: FailureTracker | None
    name: str

    def __post_init__(self) -> None:
        self.steps_done, self.stopped = 0, ""
        self.tried: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.problems: dict[str, str] = {}
        self.faults = {step: FailureTracker() if self.failures is None else self.failures for step in self.steps}
        self.begun: deque[tuple[str, str, Any]] = deque()
        self.held: dict[str, dict[str, Result]] = {}
        for result in self.store.read().results:
            self.held.setdefault(result.item, {})[result.step] = result
        self.new = iter([item for item in self.items if self.steps[0] not in self.held.get(item, {})])
        for item in self.items:
            for step in self.steps:
                if step in self.held.get(item, {}):
                    self._count(self.held[item][step])

    def run(self, threads: int) -> Outcome:
        self.listener(self._progress())
        with track_cost(self.account):
            for count in run_jobs(self._next_job, threads):
                self.listener(self._progress(count()))
        for step, faults in self.faults.items() if self.failures is None else ():
            held = Counter({step: len(faults)})
            as_failures = replace(self._progress(), tried=self.tried + held, failures=self.failed + held)
            faults.finish(too_many=not self.stopped and bool(self.stop(as_failures)))
        self.listener(self._progress())
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
        if fault := next((held.fault for held in self.faults.values() if held.fault), None):

            def fail() -> NoReturn:
                raise fault

            return fail
        return job

    def _take(self, item: str, step: str, first: Any) -> Callable[[], Result | None]:
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
        if fault is None:
            self.store.add(result)
            return partial(self._count, result)

        def keep() -> None:
            self.store.add(result)
            self.listener(self._progress(self._count(result)))

        # it fails the item only once it is known not to be the LM's own fault
        return partial(self.faults[step].defer, fault, keep)

    def _count(self, result: Result) -> Result:
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
            self.name, self.steps_done / len(self.steps), len(self.items), self.account.spent,
            dict(self.tried), dict(self.failed), self.problems, result,
        )  # fmt: skip


class Stages:
    """Work in stages, each on many items, by the loop of runs; only the replies of LMs outlive it, see
    `use_reply_store`.

    Args:
        threads: Items under way at once.
        stop: Asked before each item, with what all stages have spent.
        listener: Hears of the progress of each stage.
    """

    def __init__(self, threads: int = 16, *, stop: Stopper | None = None, listener: Listener = ignore_progress) -> None:
        self.threads, self.listener = threads, listener
        self._stop, self._account, self._store = stop or AnyOf(), CostTracker(), Store()
        self._begun: Counter[str] = Counter()
        self._faults: dict[str, FailureTracker] = {}

    def run(self, name: str, do: Callable[[T], R], items: Sequence[T], *, more: bool = False) -> list[R | Failed]:
        """The results of a stage on items, in their order; a failure where there is none.

        Args:
            name: That of the stage.
            do: Works on an item, in a thread.
            items: Any number of them.
            more: True if more items will come, until `end`: whether failures are the LM's own fault is then found over
                all of them.
        """
        results: dict[int, R | Failed] = {}
        from typedrag.lms.asking import detect_refusals  # here, since whoever reads a run needs no DSPy

        before = self._begun[name]
        self._begun[name] += len(items)

        def take(item: str, *_: object) -> None:
            place = int(item) - before
            try:
                with detect_refusals():
                    results[place] = do(items[place])
            except (StepFailed, CallFailed, InputError, NotMeasurable) as failure:
                results[place] = failure
                raise

        def hear(progress: Progress) -> None:
            self.listener(replace(progress, done=progress.done + before, planned=progress.planned + before))

        ended = work(
            [str(before + place) for place in range(len(items))], take, self._store, steps=(name,),
            threads=self.threads, stop=self._stop, listener=hear, account=self._account,
            failures=self._faults.setdefault(name, FailureTracker()), name=name,
        )  # fmt: skip
        if ended.stopped:
            raise TypedRAGError(f"stopped: {ended.stopped}", "Allow more; the LM's replies are kept")
        if not more:
            self.end(name)
        return [results[place] for place in range(len(items))]

    def end(self, name: str) -> None:
        self._faults.pop(name, FailureTracker()).finish()
