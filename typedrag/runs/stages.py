"""Work on many items by the loop of runs, in stages; only the replies of LMs outlive it, see `use_reply_store`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from typedrag.core.errors import CallFailed, InputError, NotMeasurable, StepFailed, TypedRAGError
from typedrag.lms.asking import detect_refusals
from typedrag.lms.cost import CostTracker
from typedrag.runs.failures import FailureTracker
from typedrag.runs.stop import Progress, Stopper
from typedrag.runs.store import Store
from typedrag.runs.work import work

T = TypeVar("T")
R = TypeVar("R")

Failed: TypeAlias = StepFailed | CallFailed | InputError | NotMeasurable
"""The reason why an item has no result."""
Listener = Callable[[Progress], object]


def unheard(progress: Progress) -> None:
    """The listener that shows nothing."""


class Stages:
    """Work in stages, each on many items.

    Args:
        threads: Items under way at once.
        stop: Asked before each item, with what all stages have spent.
        listener: Hears of the progress of each stage; see `work`.
    """

    def __init__(
        self,
        threads: int = 16,
        *,
        stop: Stopper = lambda progress: "",
        listener: Listener = unheard,
    ) -> None:
        self.threads, self.listener = threads, listener
        self._stop, self._account, self._store = stop, CostTracker(), Store()
        self._begun: Counter[str] = Counter()
        self._faults: dict[str, FailureTracker] = {}

    def run(self, name: str, do: Callable[[T], R], items: Sequence[T], *, more: bool = False) -> list[R | Failed]:
        """The results of the stage of this name on items, in their order; a failure where there is none.

        Args:
            name: That of the stage.
            do: Works on an item, in a thread.
            items: Any number of them.
            more: True if more items will come, until `end`: whether failures are the LM's own fault is then found over
                all of them.
        """
        results: dict[int, R | Failed] = {}
        before = self._begun[name]
        self._begun[name] += len(items)
        faults = self._faults.setdefault(name, FailureTracker())

        def take(item: str, *_: object) -> None:
            place = int(item) - before
            try:
                with detect_refusals():
                    results[place] = do(items[place])
            except (StepFailed, CallFailed, InputError, NotMeasurable) as failure:
                results[place] = failure
                raise

        def tell(progress: Progress) -> None:
            self.listener(replace(progress, done=progress.done + before, planned=progress.planned + before))

        ended = work(
            [str(before + place) for place in range(len(items))], take, self._store, steps=(name,),
            threads=self.threads, stop=self._stop, listener=tell, account=self._account, failures=faults,
            name=name,
        )  # fmt: skip
        if ended.stopped:
            raise TypedRAGError(f"stopped: {ended.stopped}", "Allow more; the LM's replies are kept")
        if not more:
            self.end(name)
        return [results[place] for place in range(len(items))]

    def end(self, name: str) -> None:
        """End a stage whose last items have come."""
        self._faults.pop(name, FailureTracker()).finish()
