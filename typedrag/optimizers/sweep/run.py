"""Workers of a sweep: each makes trials until none is left, or until there is a reason to stop."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, Trial, TrialState

from typedrag.core.errors import CallFailed, InputError
from typedrag.experiments.config import SpendingCaps
from typedrag.experiments.cost import in_words
from typedrag.experiments.ray_pool import RayPool, connect, is_one_machine
from typedrag.experiments.tracking.tracker import Tracker
from typedrag.files.database import Tables
from typedrag.files.locks import join_workers
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.replies import REPLIES, use_reply_store
from typedrag.lms.threads import thread_pool as in_threads
from typedrag.optimizers.compile.tracking import RISK
from typedrag.optimizers.sweep import study
from typedrag.optimizers.sweep.config import SweepConfig
from typedrag.optimizers.sweep.report import write_figures
from typedrag.optimizers.sweep.resources import SweepResources
from typedrag.optimizers.sweep.space import params_key
from typedrag.optimizers.sweep.study import Sweep
from typedrag.optimizers.sweep.trial import Paused, prune, run_trial
from typedrag.runs import Progress, RunFolder, read_folder
from typedrag.runs.folder import check_identity
from typedrag.text.words import question_key

KIND = "sweep"
_LOOK_AGAIN = 1.0
"""Seconds between checks for what other workers have done; less with a faster heartbeat."""
_ATTEMPTS = 1000
"""Workers that a call may lose: it makes many trials, and a study survives the loss of any worker."""


@dataclass(frozen=True)
class SweepProgress:
    """Callbacks for the progress of a sweep."""

    begun: Callable[[], None] = lambda: None
    trial: Callable[[FrozenTrial], None] = lambda trial: None
    progress: Callable[[Progress], None] = lambda progress: None
    notice: Callable[[str], None] = lambda notice: None


@dataclass(frozen=True)
class SweepResult:
    """The result of a worker."""

    sweep: Sweep
    stopped: str


@contextmanager
def open_sweep(config: SweepConfig, out: Path) -> Iterator[Sweep]:
    """Begin or join a sweep; within the context, LM replies are stored and reused.

    Raises:
        InputError: If the configuration cannot be used, or the folder or the study is of another sweep.
        Unavailable: If the study's database cannot be used.
    """
    parts = SweepResources(config, out)
    parts.check()
    parts.base.check_measurable(parts.measures)
    limit_calls_in_flight(config.calls_in_flight)
    identity = json.loads(json.dumps(parts.identity()))  # as it comes back
    questions = parts.base.questions
    items = {q.id: [str(q.question_type or ""), q.subset, question_key(q.question)] for q in questions}
    replies = study.database_url(config.storage) if config.storage else (out / REPLIES).resolve()
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        with study.wait_for_turn(config, out):
            RunFolder.open(out, identity, kind=KIND, resume=True, items=items).close()
            is_alone = held.enter_context(join_workers(out))
            opened = held.enter_context(study.open_study(config, out))
            with study.without_notices():
                _begin(opened, parts, identity, take_over=is_alone and config.storage is None)
        held.enter_context(use_reply_store(replies, config.heartbeat))
        yield Sweep(parts, opened, items)


def _begin(opened: optuna.Study, parts: SweepResources, identity: Mapping[str, object], *, take_over: bool) -> None:
    """Begin or join a study; without other workers, what is said to be running was killed, and is queued again."""
    if study.IDENTITY in opened.user_attrs:  # another machine may have begun it
        check_identity(f"study '{opened.study_name}'", opened.user_attrs[study.IDENTITY], identity)
    else:
        opened.set_user_attr(study.IDENTITY, dict(identity))
    if take_over:
        for trial in opened.get_trials(states=(TrialState.RUNNING,)):
            opened.tell(trial.number, state=TrialState.FAIL)
            study.requeue(opened, trial)
    if (first := parts.first_point) is not None:
        opened.enqueue_trial(dict(first), skip_if_exists=True)


@contextmanager
def view_sweep(config: SweepConfig, out: Path) -> Iterator[Sweep]:
    """Open a sweep to read it; neither its LMs nor its index are needed."""
    questions = read_folder(out).items
    with study.open_study(config, out) as opened:
        yield Sweep(SweepResources(config, out), opened, questions)


def run_sweep(config: SweepConfig, out: Path, *, watching: SweepProgress | None = None) -> SweepResult:
    """Make trials of a sweep; with the same configuration, other processes and machines join it.

    Work is saved as it is done. If this process is killed, another worker, or the next start, makes its trial.

    Args:
        out: The folder of the sweep on this machine, which workers on it share.

    Raises:
        InputError: If the configuration cannot be used, or the folder or the study is of another sweep.
        LMUnavailable: If an LM cannot be used; finished work is kept.
        RetrievalError: If the index or a reranker cannot be used; finished work is kept.
    """
    watching = watching or SweepProgress()
    with open_sweep(config, out) as sweep:
        watching.begun()
        if sweep.parts.risk:
            watching.notice(sweep.parts.risk)
        tracker = Tracker(config.tracking, sweep.parts.base.redactor, watching.notice)
        with study.wait_for_turn(config, out):  # MLflow's run is begun once, and joined by other workers
            tracker.begin(
                sweep.study.study_name,
                sweep.study.user_attrs[study.IDENTITY],
                sweep.study.user_attrs.get(study.MLFLOW),
                partial(sweep.study.set_user_attr, study.MLFLOW),
                tags={RISK: sweep.parts.risk},
                hint="Name another tracking.uri, or go without: tracking.enabled: false",
            )
        stopped = "a fault ended it"
        try:
            stopped = _Worker(sweep, tracker, watching).run()
        finally:
            log_sweep(tracker, sweep, stopped)
        return SweepResult(sweep, stopped)


class _Worker:
    def __init__(self, sweep: Sweep, tracker: Tracker, watching: SweepProgress) -> None:
        self.sweep, self.tracker, self.watching = sweep, tracker, watching
        self.config = sweep.parts.config
        stop = self.config.stop
        self.trials = min(stop.trials, sweep.parts.space.size)
        self.limits = SpendingCaps(tokens=stop.tokens, minutes=stop.minutes).stopper()
        self.projected = False
        self.number: int | None = None

    def run(self) -> str:
        optuna_study, space = self.sweep.study, self.sweep.parts.space
        self._project()
        while not (reason := self._reason_to_stop()):
            with study.without_notices():
                optuna.storages.fail_stale_trials(optuna_study)
            trials = self.sweep.trials()
            states = [trial.state for trial in trials]
            if TrialState.WAITING in states or sum(state in study.BEGUN for state in states) < self.trials:
                optuna_study.sampler = study.build_sampler(self.config.sampler, space, trials)
                self._make_trial()
            elif TrialState.RUNNING in states:  # its worker may die
                time.sleep(min(_LOOK_AGAIN, self.config.heartbeat / 2))
            else:
                return ""
        return reason

    def _make_trial(self) -> None:
        self.number = None
        try:
            with study.without_notices(ExperimentalWarning):
                self.sweep.study.optimize(self._objective, n_trials=1, catch=(_DuplicateError,))
        except BaseException as error:
            trials = self.sweep.trials()
            with study.without_notices():
                taken_over = any(self.number in study.requeue.retry_history(trial) for trial in trials)
            if self.number is not None and trials[self.number].state == TrialState.FAIL and not taken_over:
                study.requeue(self.sweep.study, trials[self.number])
            if taken_over and isinstance(error, UpdateFinishedTrialError | ValueError):
                return  # this worker was silent for so long that another makes the trial
            if not isinstance(error, Paused):
                raise
        else:
            trial = self.sweep.trials()[self.number or 0]
            if trial.state in study.ENDED:
                self.watching.trial(trial)
                self._project()

    def _objective(self, trial: Trial) -> list[float]:
        self.number = trial.number
        key = params_key(self.sweep.parts.space.suggest(trial))
        others = [t for t in self.sweep.trials(*study.BEGUN) if t.number != trial.number]
        if any(t.number < trial.number and params_key(t.params) == key for t in others):
            trial.set_user_attr(study.DUPLICATE, True)
            raise _DuplicateError
        spent = study.sum_spending(*(t for t in self.sweep.trials() if t.number != trial.number))
        try:
            return run_trial(
                self.sweep,
                trial,
                stop=lambda progress: self.limits(replace(progress, spent=spent + progress.spent)),
                reason_to_stop=self._reason_to_stop,
                parent=self.tracker.id,
                on_progress=self.watching.progress,
                on_notice=self.watching.notice,
            )
        except CallFailed as fault:
            if not self.sweep.parts.lms_answer():
                raise
            prune(self.sweep, trial, str(fault))  # the LM refuses what these parameters make of it

    def _project(self) -> None:
        """Say once what all trials will take, as soon as one has come to its end."""
        ended = self.sweep.trials(*study.ENDED)
        if self.projected or not 0 < len(ended) < self.trials:
            return
        self.projected = True
        trials = int(self.trials)
        total = study.sum_spending(*ended).times(trials / len(ended))
        words = in_words(total, trials, "trial")
        less = "less where trials end early or share replies"
        self.watching.notice(f"after {len(ended)} of {trials:,} trials: {words}; {less}")
        if caps := SpendingCaps(tokens=self.config.stop.tokens).exceeded_caps(total):
            self.watching.notice(f"that is more than the {caps} allowed: the sweep may be stopped before its end")

    def _reason_to_stop(self) -> str:
        return self.limits(Progress(spent=study.sum_spending(*self.sweep.trials()))) or self._no_improvement()

    def _no_improvement(self) -> str:
        """The number of trials in a row without a better one, in words, if it is the limit; else empty."""
        most = self.config.stop.no_improvement
        ended = [trial for trial in self.sweep.trials(*study.ENDED) if trial.datetime_complete]
        if most is None or len(ended) <= most:
            return ""
        last = {t.number for t in sorted(ended, key=lambda t: t.datetime_complete or datetime.min)[-most:]}
        best = {trial.number for trial in self.sweep.front}
        return "" if last & best or not best else f"none of the last {most} trials is better than those before"


class _DuplicateError(Exception):
    """An earlier trial has the same parameters."""


@dataclass(frozen=True)
class SweepJob:
    """The work of a worker of Ray in a sweep; see `experiments.ray_pool.JobSpec`."""

    config: SweepConfig
    out: Path

    def __call__(self, tables: Tables, worker: str) -> AbstractContextManager[SweepJob]:
        return nullcontext(self)

    def make_trials(self) -> str:
        return run_sweep(self.config, self.out).stopped


def run_sweep_on_ray(
    config: SweepConfig, out: Path, executor: str, workers: int | None, *, watching: SweepProgress | None = None
) -> SweepResult:
    """Make trials of a sweep by workers of a Ray cluster, each of which works as any other process does."""
    watching = watching or SweepProgress()
    calls = config.calls_in_flight
    with open_sweep(config, out) as sweep, connect(executor, workers, threads=calls, calls=calls) as number:
        if config.storage is None and not is_one_machine():
            raise InputError(
                "the study is in a folder, and the Ray cluster has several machines",
                "Name a database that they share: --storage postgresql://…",
            )
        watching.begun()
        if sweep.parts.risk:
            watching.notice(sweep.parts.risk)
        known = {trial.number for trial in sweep.trials(*study.ENDED)}

        def notify() -> None:
            for trial in sweep.trials(*study.ENDED):
                if trial.number not in known:
                    known.add(trial.number)
                    watching.trial(trial)

        share = config.model_copy(update={"calls_in_flight": max(1, calls // number)})
        job = SweepJob(share, out.resolve())
        with in_threads(number) as threads, closing(RayPool(job, number, threads=number, calls=calls)) as pool:
            working: list[Future[str]] = [
                threads.submit(pool.call, "make_trials", attempts=_ATTEMPTS) for _ in range(number)
            ]
            while wait(working, _LOOK_AGAIN).not_done:
                notify()
            notify()
        return SweepResult(sweep, next(filter(None, (ended.result() for ended in working)), ""))


def log_sweep(tracker: Tracker, sweep: Sweep, stopped: str) -> None:
    if not tracker.id:
        return
    with tracker.attempt(f"sweep '{tracker.name}'", "Nothing is lost: the same command logs it"):
        trials, best = sweep.trials(), sweep.front
        tracker.log({f"trials/{s.name.lower()}": sum(t.state == s for t in trials) for s in TrialState})
        tracker.log(study.sum_spending(*trials).metrics)
        if best:
            measures = [o.measure for o in sweep.parts.config.objectives]
            tracker.log({f"best/{m}": value for m, value in zip(measures, best[0].values, strict=True)})
        tracker.table("trials.json", list(_rows(sweep)))
        with tempfile.TemporaryDirectory() as folder:
            write_figures(sweep, Path(folder))
            tracker.artifacts(Path(folder))
        tracker.tag({"stopped": stopped})
        if not sweep.trials(TrialState.RUNNING):
            tracker.end(stopped=bool(stopped))


def _rows(sweep: Sweep) -> Iterator[dict[str, Any]]:
    on_front = {trial.number for trial in sweep.front}
    for trial in sweep.trials(*study.ENDED):
        values = study.values_of_trial(trial)
        yield {
            "trial": trial.number,
            "state": trial.state.name.lower(),
            "on front": trial.number in on_front,
            "keeps to constraints": study.is_feasible(trial),
            "questions": study.answered(trial),
            **{name: trial.params.get(name) for name in sweep.parts.space.distributions},
            **{o.measure: study.mean_value(values, o.measure) for o in sweep.parts.config.objectives},
            **{f"spent {name}": n for name, n in trial.user_attrs.get(study.SPENT, {}).items()},
            "why it was pruned": trial.user_attrs.get(study.PROBLEM, ""),
        }
