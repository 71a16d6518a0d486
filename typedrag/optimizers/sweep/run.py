"""A worker of a sweep: it makes trials until none is left, or until there is a reason to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from optuna.trial import FrozenTrial, Trial, TrialState

from typedrag.errors import CallFailed
from typedrag.experiments.estimate import in_words
from typedrag.experiments.evaluate.config import SpendingCaps
from typedrag.experiments.tracking.tracker import Tracker
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.cost import Spending
from typedrag.lms.replies import use_reply_store
from typedrag.optimizers.sweep.config import ObjectiveConfig, StopConfig, SweepConfig
from typedrag.optimizers.sweep.objectives import front, levels
from typedrag.optimizers.sweep.resources import SweepResources
from typedrag.optimizers.sweep.storage import Storage, open_storage
from typedrag.optimizers.sweep.study import ENDED, Study, answered, is_feasible, spent_on, values_of_trial
from typedrag.optimizers.sweep.tracking import begin_sweep, log_sweep
from typedrag.optimizers.sweep.trial import Paused, fail_trial, run_trial
from typedrag.runs import Progress, Stopper
from typedrag.runs.failures import FailureTracker
from typedrag.texts.words import question_key

_LOOK_AGAIN = 1.0
"""Seconds between checks for an abandoned trial of another worker; less with a faster heartbeat."""


@dataclass(frozen=True)
class SweepProgress:
    """Callbacks for the progress of a sweep.

    Attributes:
        begun: Called once the study was begun or joined; never if the sweep is refused.
        trial: Called with each trial of this worker as it ends.
        progress: Called with the progress of a trial.
    """

    begun: Callable[[], None] = lambda: None
    trial: Callable[[FrozenTrial], None] = lambda trial: None
    progress: Callable[[Progress], None] = lambda progress: None
    notice: Callable[[str], None] = lambda notice: None


@dataclass(frozen=True)
class Sweep:
    """A sweep as it stands."""

    parts: SweepResources
    study: Study

    @property
    def front(self) -> list[FrozenTrial]:
        """The trials that no other beats, the best at the first objective first."""
        return best_trials(self.study.trials((TrialState.COMPLETE,)), self.parts.config.objectives)


@dataclass(frozen=True)
class Swept:
    """The result of a worker.

    Attributes:
        stopped: Why the worker stopped; empty if nothing is left to do.
    """

    sweep: Sweep
    stopped: str


@contextmanager
def open_sweep(config: SweepConfig, out: Path) -> Iterator[Sweep]:
    """Begin or join a sweep; within the context, LM replies are stored and reused.

    Raises:
        InputError: If the configuration cannot be used, or the study is of another sweep.
    """
    parts = SweepResources(config, out)
    parts.check()
    parts.base.check_measurable(parts.measures)
    limit_calls_in_flight(config.calls_in_flight)
    with _opened(parts) as (sweep, storage), use_reply_store(storage.replies, config.heartbeat):
        questions = [
            [q.id, str(q.question_type or ""), q.subset, question_key(q.question)] for q in parts.base.questions
        ]
        sweep.study.begin(parts.identity(), questions, parts.first_point)
        yield sweep


@contextmanager
def view_sweep(config: SweepConfig, out: Path) -> Iterator[Sweep]:
    """Open a sweep to read it; neither its LMs nor its index are needed.

    Raises:
        InputError: If the configuration cannot be used.
        Unavailable: If the study's database cannot be used.
    """
    with _opened(SweepResources(config, out)) as (sweep, _):
        yield sweep


@contextmanager
def _opened(parts: SweepResources) -> Iterator[tuple[Sweep, Storage]]:
    config = parts.config
    storage: Storage = open_storage(config.storage, parts.out, config.heartbeat)
    try:
        yield Sweep(parts, Study(storage, config.name, parts.config.objectives, parts.space, config.sampler)), storage
    finally:
        storage.close()


def run_sweep(config: SweepConfig, out: Path, *, watching: SweepProgress | None = None) -> Swept:
    """Make trials of a sweep; with the same configuration, other processes and machines join it.

    Work is saved as it is done. If this process is killed, another worker, or the next start, takes up
    its trial.

    Args:
        out: The folder of the sweep on this machine, which workers on it share.

    Raises:
        InputError: If the configuration cannot be used, or the study is of another sweep.
        LMUnavailable: If an LM cannot be used; finished work is kept.
        RetrievalError: If the index or a reranker cannot be used; finished work is kept.
    """
    watching = watching or SweepProgress()
    with open_sweep(config, out) as sweep:
        watching.begun()
        if sweep.parts.risk:
            watching.notice(sweep.parts.risk)
        tracker = Tracker(config.tracking, sweep.parts.redactor, watching.notice)
        begin_sweep(tracker, sweep.study, sweep.parts.identity(), sweep.parts.risk)
        stopped = "a fault ended it"
        try:
            stopped = _Worker(sweep, tracker, watching).run()
        finally:
            log_sweep(tracker, sweep.study, sweep.front, stopped)
        return Swept(sweep, stopped)


class _Worker:
    def __init__(self, sweep: Sweep, tracker: Tracker, watching: SweepProgress) -> None:
        self.sweep, self.tracker, self.watching = sweep, tracker, watching
        stop = sweep.parts.config.stop
        self.limits = SpendingCaps(tokens=stop.tokens, minutes=stop.minutes).stopper()
        self.faults = FailureTracker()
        self.projected = False

    def run(self) -> str:
        """Make trials, and return why it stopped; empty if nothing is left to do."""
        study, config = self.sweep.study, self.sweep.parts.config
        self._project()
        with ExitStack() as held:  # what an LM fails at altogether, until it answers another trial
            while not (reason := self._reason_to_stop()):
                trial = study.next(config.stop.trials)
                if isinstance(trial, str) and self.faults:
                    if study.trials((TrialState.COMPLETE,)):  # the LM answered another worker
                        self.faults.on_success()
                    self.faults.finish()
                elif trial == "done":
                    return ""
                elif isinstance(trial, str):
                    time.sleep(min(_LOOK_AGAIN, config.heartbeat / 2))
                else:
                    self._make(trial, held)
                    if self.faults.fault:
                        raise self.faults.fault
        return reason

    def _make(self, trial: Trial, held: ExitStack) -> None:
        """Make a trial; hold it if an LM fails at all its questions, until another trial shows whose fault that is."""
        study = self.sweep.study
        work = ExitStack()
        try:
            with work:
                work.enter_context(study.at_work(trial))
                try:
                    run_trial(
                        self.sweep.parts,
                        study,
                        trial,
                        stop=self._stopper(trial),
                        parent=self.tracker.id,
                        may_go_on=lambda: not self._reason_to_stop(),
                        on_progress=self.watching.progress,
                        on_notice=self.watching.notice,
                    )
                except CallFailed as fault:
                    held.push(work.pop_all())
                    self.faults.defer(fault, partial(self._fail, trial, fault))
                    return
        except Paused:
            return  # the caller's loop meets the same reason to stop
        if answered(self._frozen(trial)):
            self.faults.on_success()
        self.watching.trial(self._frozen(trial))
        self._project()

    def _project(self) -> None:
        """Say once what all trials will take, as soon as one has come to its end."""
        study, stop = self.sweep.study, self.sweep.parts.config.stop
        ended = study.trials(ENDED)
        trials = int(min(stop.trials, self.sweep.parts.space.size))
        if self.projected or not 0 < len(ended) < trials:
            return
        self.projected = True
        total = sum(map(spent_on, ended), Spending()).times(trials / len(ended))
        words = in_words(total, trials, "trial")
        less = "less where trials end early or share replies"
        self.watching.notice(f"after {len(ended)} of {trials:,} trials: {words}; {less}")
        if caps := SpendingCaps(tokens=stop.tokens).too_low_for(total):
            self.watching.notice(f"that is more than the {caps} allowed: the sweep may be stopped before its end")

    def _fail(self, trial: Trial, fault: CallFailed) -> None:
        fail_trial(self.sweep.study, trial, self.sweep.parts, fault)
        self.watching.trial(self._frozen(trial))

    def _frozen(self, trial: Trial) -> FrozenTrial:
        return next(t for t in self.sweep.study.trials() if t.number == trial.number)

    def _stopper(self, trial: Trial) -> Stopper:
        """The sweep's limits as those of a trial, on top of what the others have spent until now."""
        others = sum((spent_on(t) for t in self.sweep.study.trials() if t.number != trial.number), Spending())
        return lambda progress: self.limits(replace(progress, spent=others + progress.spent))

    def _reason_to_stop(self) -> str:
        config, trials = self.sweep.parts.config, self.sweep.study.trials()
        spent = sum(map(spent_on, trials), Spending())
        return self.limits(Progress(spent=spent)) or no_improvement(trials, config.stop, config.objectives)


def no_improvement(trials: Sequence[FrozenTrial], stop: StopConfig, objectives: Sequence[ObjectiveConfig]) -> str:
    """The number of trials in a row without a better one, in words, if it is the limit; else empty."""
    ended = [trial for trial in trials if trial.state in ENDED and trial.datetime_complete is not None]
    if stop.no_improvement is not None and len(ended) > stop.no_improvement:
        ended.sort(key=lambda trial: trial.datetime_complete.timestamp() if trial.datetime_complete else 0.0)
        last = {trial.number for trial in ended[-stop.no_improvement :]}
        best = best_trials([t for t in ended if t.state == TrialState.COMPLETE], objectives)
        if best and not last & {trial.number for trial in best}:
            return f"none of the last {stop.no_improvement} trials is better than those before"
    return ""


def best_trials(trials: Sequence[FrozenTrial], objectives: Sequence[ObjectiveConfig]) -> list[FrozenTrial]:
    """The complete trials that keep to the constraints and that no other beats, the best at the first objective
    first; equally good trials are all returned."""
    allowed = [trial for trial in trials if is_feasible(trial)]
    if not allowed:
        return []
    reached = levels_of(allowed, objectives)
    best = [(reached[i][0] or 0.0, allowed[i]) for i in front(reached)]
    return [trial for _, trial in sorted(best, key=lambda pair: (-pair[0], pair[1].number))]


def levels_of(trials: Sequence[FrozenTrial], objectives: Sequence[ObjectiveConfig]) -> list[list[float | None]]:
    """The levels of complete trials at each objective, on all questions of the sweep; see `levels`."""
    values = [values_of_trial(trial) for trial in trials]
    questions = max((len(column) for columns in values for column in columns.values()), default=0)
    return levels(values, objectives, questions)
