"""Workers of a sweep: each makes trials until none is left, or until there is a reason to stop.

In a trial, the program of its parameters answers growing sets of the sweep's questions until it falls behind others.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NoReturn

import optuna
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, Trial, TrialState

from typedrag.core.errors import CallFailed, InputError, StepFailed, TypedRAGError
from typedrag.experiments import ray_pool
from typedrag.experiments.config import SpendingCaps
from typedrag.experiments.cost import in_words
from typedrag.experiments.evaluate import answer_and_judge, open_run
from typedrag.experiments.executors import LocalExecutor
from typedrag.experiments.held_out import with_objective
from typedrag.experiments.results import Run, question_items, restore_run, summarize
from typedrag.experiments.tracking.tracker import PARENT, TRIAL, Tracker, log_run, trace_calls
from typedrag.files.database import Tables
from typedrag.files.locks import join_workers
from typedrag.lms.client import limit_calls_in_flight
from typedrag.lms.cost import CostTracker, Spending, track_cost
from typedrag.lms.replies import REPLIES, use_reply_store
from typedrag.lms.threads import thread_pool
from typedrag.metrics.objective import measurable_ids
from typedrag.optimizers.compile.run import RISK
from typedrag.optimizers.sweep import study
from typedrag.optimizers.sweep.config import SweepConfig
from typedrag.optimizers.sweep.report import write_figures
from typedrag.optimizers.sweep.resources import SweepResources
from typedrag.optimizers.sweep.space import params_key
from typedrag.optimizers.sweep.study import Sweep
from typedrag.runs import Progress, RunFolder, read_folder
from typedrag.runs.folder import check_identity
from typedrag.text.words import question_key

KIND, TRIALS = "sweep", "trials"
POINT_TAG, STATE_TAG, NUMBER_TAG = "typedrag.point", "typedrag.state", "typedrag.trial"
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


@contextmanager
def open_sweep(config: SweepConfig, out: Path) -> Iterator[Sweep]:
    """Begin or join a sweep; within the context, LM replies are stored and reused."""
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
                if study.IDENTITY in opened.user_attrs:  # another machine may have begun it
                    check_identity(f"study '{opened.study_name}'", opened.user_attrs[study.IDENTITY], identity)
                else:
                    opened.set_user_attr(study.IDENTITY, identity)
                if is_alone and config.storage is None:  # what is said to be running was killed
                    for trial in opened.get_trials(states=(TrialState.RUNNING,)):
                        opened.tell(trial.number, state=TrialState.FAIL)
                        study.requeue(opened, trial)
                if (first := parts.first_point) is not None:
                    opened.enqueue_trial(dict(first), skip_if_exists=True)
        held.enter_context(use_reply_store(replies, config.heartbeat))
        yield Sweep(parts, opened, items)


@contextmanager
def view_sweep(config: SweepConfig, out: Path) -> Iterator[Sweep]:
    """Open a sweep to read it; neither its LMs nor its index are needed."""
    questions = read_folder(out).items
    with study.open_study(config, out) as opened:
        yield Sweep(SweepResources(config, out), opened, questions)


def run_sweep(config: SweepConfig, out: Path, *, watching: SweepProgress | None = None) -> Sweep:
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
                kind="sweep",
                dataset=sweep.parts.base.dataset,
                tags={RISK: sweep.parts.risk},
                hint="Name another tracking.uri, or go without: tracking.enabled: false",
            )
        stopped = "a fault ended it"
        try:
            stopped = _Worker(sweep, tracker, watching).run()
        finally:
            if tracker.id:
                with tracker.attempt(f"sweep '{tracker.name}'", "Nothing is lost: the same command logs it"):
                    _log_sweep(tracker, sweep, stopped)
        return replace(sweep, stopped=stopped)


class _DuplicateError(Exception):
    """An earlier trial has the same parameters."""


class _Paused(Exception):
    """The sweep ends before the trial does; the trial is left to whoever continues the sweep."""


class _Worker:
    def __init__(self, sweep: Sweep, tracker: Tracker, watching: SweepProgress) -> None:
        self.sweep, self.tracker, self.watching = sweep, tracker, watching
        self.parts, self.config = sweep.parts, sweep.parts.config
        stop = self.config.stop
        self.trials = min(stop.trials, sweep.parts.space.size)
        self.limits = SpendingCaps(tokens=stop.tokens, minutes=stop.minutes).stopper()
        self.projected = False
        self.number: int | None = None

    def run(self) -> str:
        optuna_study, space = self.sweep.study, self.parts.space
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
            if not isinstance(error, _Paused):
                raise
        else:
            trial = self.sweep.trials()[self.number or 0]
            if trial.state in study.ENDED:
                self.watching.trial(trial)
                self._project()

    def _objective(self, trial: Trial) -> list[float]:
        self.number = trial.number
        key = params_key(self.parts.space.suggest(trial))
        others = [t for t in self.sweep.trials() if t.number != trial.number]
        earlier = [t for t in others if t.number < trial.number and t.state in study.BEGUN]
        if any(params_key(t.params) == key for t in earlier):
            trial.set_user_attr(study.DUPLICATE, True)
            raise _DuplicateError
        try:
            return self._measure(trial, study.sum_spending(*others))
        except CallFailed as fault:
            if not self.parts.lms_answer():
                raise
            self._prune(trial, str(fault))  # the LM refuses what these parameters make of it

    def _measure(self, trial: Trial, spent: Spending) -> list[float]:
        """Measure the parameters of a trial, whose LM replies are kept, and return the values of the objectives."""
        parts, base, config = self.parts, self.parts.base, self.config
        here, account = parts.components(trial.params), CostTracker()
        # that of a trial whose parameters it makes again is its own
        trial.set_user_attr(study.SPENT, account.spent.to_dict())
        try:
            with _note_spending(trial, account), track_cost(account):
                named = parts.program_config(trial.params, name=f"trial-{trial.number}")
                program = here.program(named)
        except (InputError, StepFailed) as error:  # of these parameters alone; others may work
            self._prune(trial, str(error))
        folder, questions = parts.out / TRIALS / str(trial.number), base.questions
        sizes = study.question_sets(len(questions), config.pruning)
        executor = LocalExecutor(program, here.metrics)
        measurable = measurable_ids(here.metrics.values(), base.examples)
        tracker = Tracker(config.tracking, base.redactor, self.watching.notice)

        def stop(progress: Progress) -> str:
            return self.limits(replace(progress, spent=spent + progress.spent))

        with open_run(
            here, named, folder, resume=True, questions=questions[: sizes[0]], durable=False,
            notes={"knobs": dict(trial.params), "trial": trial.number},
        ) as held:  # answers lost from it are found among the stored replies  # fmt: skip
            begun = restore_run(held.store.read(), folder)
            tags = {PARENT: self.tracker.id, POINT_TAG: params_key(trial.params), NUMBER_TAG: str(trial.number)}
            remember = partial(trial.set_user_attr, study.MLFLOW)
            try:  # the run of a trial whose parameters it makes again is resumed
                known = trial.user_attrs.get(study.MLFLOW)
                tracker.begin(begun.name, begun.settings, known, remember, kind=TRIAL, dataset=base.dataset, tags=tags)
            except TypedRAGError as error:  # the store worked when the sweep began
                self.watching.notice(f"trial {trial.number} is not logged to MLflow: {error}")
            stopped, state = "a fault ended it", ""
            try:
                for size in sizes:
                    held.store.plan(question_items(questions[:size]))
                    with _note_spending(trial, account), trace_calls(tracker):
                        ended = answer_and_judge(
                            here, executor, held, base.examples[:size], name=named.name, account=account,
                            tracker=tracker, stop=stop, on_progress=self.watching.progress,
                        )  # fmt: skip
                    stopped = ended.stopped
                    if stopped and stop(ended.progress):
                        raise _Paused
                    run = with_objective(restore_run(held.store.read(), folder), config.weights, measurable)
                    if size == sizes[0]:
                        self._check_measures(run)
                    values = study.collect_values(run, [q.id for q in questions[:size]])
                    trial.set_user_attr(study.VALUES, values)
                    means = {o.measure: study.mean_value(values, o.measure) for o in config.objectives}
                    if len(means) == 1 and (mean := means[config.objectives[0].measure]) is not None:
                        trial.report(mean, step=size)  # samplers learn from it if the trial is pruned
                    for name, excess in study.violations(config.constraints, values).items():
                        trial.set_constraint(name, excess)
                    if stopped:
                        state = stopped
                    elif size < sizes[-1]:
                        begun_trials = [t for t in self.sweep.trials(*study.BEGUN) if t.number != trial.number]
                        others = [study.values_of_trial(t) for t in begun_trials if study.answered(t) >= size]
                        if study.is_behind(values, others, size, config):
                            state = f"behind others after {size} questions"
                    elif missing := [measure for measure, mean in means.items() if mean is None]:
                        state = f"no question has a value of {', '.join(missing)}"
                    if state:
                        self._prune(trial, state)
                    if size < sizes[-1] and self._reason_to_stop():
                        stopped = "the sweep was stopped"
                        raise _Paused
                state = "complete"
                return [mean for mean in means.values() if mean is not None]
            finally:
                run = replace(restore_run(held.store.read(), folder), name=named.name)
                tags = {STATE_TAG: state if state in ("", "complete") else f"pruned: {state}"}
                log_run(tracker, run, summarize(run, here.metrics), stopped, tags if state else {})

    def _check_measures(self, run: Run) -> None:
        """Refuse a measure that its metric did not give for the first questions."""
        for measure in self.parts.measures:
            metric, _, name = measure.partition("/")
            known = [m for m in run.measures if m.startswith(f"{metric}/")]
            if known and name != "score" and measure not in known:
                raise InputError(
                    f"metric '{metric}' gives the first {len(run.questions)} questions no measure '{name}'",
                    f"Name another: {metric}/score, {', '.join(known)}; or set pruning.first higher if few have one",
                )

    def _prune(self, trial: Trial, reason: str) -> NoReturn:
        """End a trial before its time, for a reason that is kept with it."""
        trial.set_user_attr(study.PROBLEM, self.parts.base.redactor(reason))
        raise optuna.TrialPruned

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
        """The limit that is reached, or the number of trials in a row without a better one, in words; else empty."""
        if reason := self.limits(Progress(spent=study.sum_spending(*self.sweep.trials()))):
            return reason
        most = self.config.stop.no_improvement
        ended = [trial for trial in self.sweep.trials(*study.ENDED) if trial.datetime_complete]
        if most is None or len(ended) <= most:
            return ""
        last = {t.number for t in sorted(ended, key=lambda t: t.datetime_complete or datetime.min)[-most:]}
        best = {trial.number for trial in self.sweep.front}
        return "" if last & best or not best else f"none of the last {most} trials is better than those before"


@contextmanager
def _note_spending(trial: Trial, account: CostTracker) -> Iterator[None]:
    try:
        yield
    finally:
        trial.set_user_attr(study.SPENT, {"tokens": account.spent.tokens, **account.spent.to_dict()})


@dataclass(frozen=True)
class SweepJob:
    """The work of a worker of Ray in a sweep; see `experiments.ray_pool.JobSpec`."""

    config: SweepConfig
    out: Path

    def __call__(self, replies: Tables | None, worker: str) -> AbstractContextManager[SweepJob]:
        return nullcontext(self)

    def make_trials(self) -> str:
        return run_sweep(self.config, self.out).stopped


def run_sweep_on_ray(
    config: SweepConfig, out: Path, executor: str, workers: int | None, *, watching: SweepProgress | None = None
) -> Sweep:
    """Make trials of a sweep by workers of a Ray cluster, each of which works as any other process does."""
    watching, calls = watching or SweepProgress(), config.calls_in_flight
    with open_sweep(config, out) as sweep, ray_pool.connect(executor, workers, threads=calls, calls=calls) as number:
        if config.storage is None and not ray_pool.is_one_machine():
            raise InputError(
                "the study is in a folder, and the Ray cluster has several machines",
                "Name a database that they share: --storage postgresql://…",
            )
        watching.begun()
        if sweep.parts.risk:
            watching.notice(sweep.parts.risk)
        known = {trial.number for trial in sweep.trials(*study.ENDED)}
        share = config.model_copy(update={"calls_in_flight": max(1, calls // number)})
        pool = ray_pool.RayPool(SweepJob(share, out.resolve()), number, threads=number, calls=calls)
        with thread_pool(number) as threads, closing(pool):
            working: list[Future[str]] = [
                threads.submit(pool.call, "make_trials", attempts=_ATTEMPTS) for _ in range(number)
            ]
            is_working = True
            while is_working:
                is_working = bool(wait(working, _LOOK_AGAIN).not_done)
                for trial in sweep.trials(*study.ENDED):
                    if trial.number not in known:
                        known.add(trial.number)
                        watching.trial(trial)
        return replace(sweep, stopped=next(filter(None, (ended.result() for ended in working)), ""))


def _log_sweep(tracker: Tracker, sweep: Sweep, stopped: str) -> None:
    trials, best, config = sweep.trials(), sweep.front, sweep.parts.config
    tracker.log({f"trials/{s.name.lower()}": sum(t.state == s for t in trials) for s in TrialState})
    tracker.log(study.sum_spending(*trials).metrics)
    if best:
        measured = zip(config.objectives, best[0].values, strict=True)
        tracker.log({f"best/{o.measure}": value for o, value in measured})
    on_front, rows = {trial.number for trial in best}, []
    for trial in sweep.trials(*study.ENDED):
        values = study.values_of_trial(trial)
        row = {
            "trial": trial.number,
            "state": trial.state.name.lower(),
            "on front": trial.number in on_front,
            "keeps to constraints": study.is_feasible(trial),
            "questions": study.answered(trial),
            **{name: trial.params.get(name) for name in sweep.parts.space.distributions},
            **{o.measure: study.mean_value(values, o.measure) for o in config.objectives},
            **{f"spent {name}": n for name, n in trial.user_attrs.get(study.SPENT, {}).items()},
            "why it was pruned": trial.user_attrs.get(study.PROBLEM, ""),
        }
        rows.append(row)
    tracker.table("trials.json", rows)
    with tempfile.TemporaryDirectory() as folder:
        write_figures(sweep, Path(folder))
        tracker.artifacts(Path(folder))
        tracker.link("figures.html", "The sweep's page: its front, its trials and what mattered")
    tracker.tag({"stopped": stopped or "no"})  # also where an earlier session was stopped
    if not sweep.trials(TrialState.RUNNING):
        tracker.end(stopped=bool(stopped))
