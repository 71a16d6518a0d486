"""A trial: a point's program answers growing sets of the sweep's questions until it falls behind others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from optuna.trial import Trial, TrialState

from typedrag.errors import CallFailed, InputError, StepFailed, TypedRAGError
from typedrag.experiments.compare.weighted import with_objective
from typedrag.experiments.evaluate.evaluate import answer_and_judge, open_run
from typedrag.experiments.evaluate.results import Run
from typedrag.experiments.evaluate.run_store import items_of, read_run, run_of
from typedrag.experiments.evaluate.summary import summarize
from typedrag.experiments.executors.executor import Here
from typedrag.experiments.tracking.runs import begin_run, log_run
from typedrag.experiments.tracking.tracing import trace_calls
from typedrag.experiments.tracking.tracker import PARENT, Tracker
from typedrag.lms.cost import CostTracker, track_cost
from typedrag.metrics.objective import measurable_by
from typedrag.optimizers.sweep.config import SweepConfig
from typedrag.optimizers.sweep.objectives import Values, mean_of, values_of, violations
from typedrag.optimizers.sweep.pruning import goes_on, question_sets
from typedrag.optimizers.sweep.resources import SweepResources
from typedrag.optimizers.sweep.space import key_of
from typedrag.optimizers.sweep.study import (
    PROBLEM,
    SPENT,
    VALUES,
    Study,
    answered,
    note,
    unless_taken_up,
    values_of_trial,
)
from typedrag.runs import Progress, Stopper, is_run

TRIALS = "trials"
POINT_TAG, STATE_TAG, NUMBER_TAG = "typedrag.point", "typedrag.state", "typedrag.trial"


class Paused(Exception):
    """The sweep ends before the trial does; the trial is left to whoever continues the sweep."""


def run_trial(
    parts: SweepResources,
    study: Study,
    trial: Trial,
    *,
    stop: Stopper,
    parent: str = "",
    may_go_on: Callable[[], bool] = lambda: True,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> None:
    """Make a trial, or continue one that was begun; finished work is kept on errors.

    Args:
        parent: The id of MLflow's run of the study; empty if there is none.
        stop: Tells why the sweep is to stop within the trial.
        may_go_on: Called before each further set of questions.

    Raises:
        InputError: If an objective or constraint is no measure of its metric.
        Paused: If it may not go on.
        LMUnavailable: If an LM cannot be used.
        RetrievalError: If the index or a reranker cannot be used.
    """
    point, base = trial.params, parts.base
    here = parts.at(point)
    account = CostTracker()
    try:
        with _track_spending(trial, account), track_cost(account):
            config = parts.program_of(point, name=f"trial-{trial.number}")
            program = here.program(config)
    except (InputError, StepFailed) as error:  # of this point alone; others may work
        _end(study, trial, parts, {}, parts.redactor(str(error)))
        return
    folder = parts.out / TRIALS / key_of(point)
    planned = read_run(folder).planned if is_run(folder) else 0
    sizes = [n for n in question_sets(len(base.questions), parts.config.pruning) if n >= planned]
    executor = Here(program, here.metrics)
    tags = {PARENT: parent, POINT_TAG: key_of(point), NUMBER_TAG: str(trial.number)}
    tracker = Tracker(parts.config.tracking, parts.redactor, on_notice)
    notes = {"knobs": dict(point), "trial": trial.number}
    questions = base.questions
    measurable = measurable_by(here.metrics.values(), base.examples)
    with open_run(
        here, config, folder, resume=True, questions=questions[: sizes[0]], notes=notes, durable=False
    ) as held:  # answers lost from it are found among the stored replies
        try:
            begin_run(tracker, run_of(held.store.read(), folder), held.store.note, tags)
        except TypedRAGError as error:  # the store worked when the sweep began
            on_notice(f"trial {trial.number} is not logged to MLflow: {error}")
        state, stopped, ending = "", "a fault ended it", {}
        try:
            for size in sizes:
                held.store.plan(items_of(questions[:size]))
                with _track_spending(trial, account), trace_calls(tracker):
                    ended = answer_and_judge(
                        here, executor, held, base.examples[:size], name=config.name, account=account,
                        tracker=tracker, stop=stop, on_progress=on_progress,
                    )  # fmt: skip
                stopped = ended.stopped
                if stopped and stop(ended.progress):
                    raise Paused
                done = with_objective(run_of(held.store.read(), folder), parts.config.weights, measurable)
                if size == sizes[0]:
                    _check_measures(done, parts.measures)
                values = _report_values(trial, done, [q.id for q in questions[:size]], parts)
                state = stopped or _fate(study, trial, values, parts.config, size, last=size == sizes[-1])
                if state:
                    break
                if not may_go_on():
                    stopped = "the sweep was stopped"
                    raise Paused
            _end(study, trial, parts, values, state)
            ending = {STATE_TAG: "complete" if state == _COMPLETE else f"pruned: {state}"}
        finally:
            run = replace(run_of(held.store.read(), folder), name=config.name)
            log_run(tracker, run, summarize(run, here.metrics), stopped, ending)


def fail_trial(study: Study, trial: Trial, parts: SweepResources, fault: CallFailed) -> None:
    """End a trial whose every question an LM fails at, although it answers other trials."""
    _end(study, trial, parts, {}, parts.redactor(str(fault)))


_COMPLETE = "complete"


@contextmanager
def _track_spending(trial: Trial, account: CostTracker) -> Iterator[None]:
    """Note in the study what the trial has spent, also on an error.

    Costs of its point before it was taken up again are noted in the earlier trial.
    """
    try:
        yield
    finally:
        note(trial, SPENT, {"tokens": account.spent.tokens, **account.spent.to_dict()})


def _check_measures(run: Run, measures: Iterable[str]) -> None:
    """Refuse a measure that its metric did not give for the first questions."""
    for measure in measures:
        metric, _, name = measure.partition("/")
        known = [m for m in run.measures if m.startswith(f"{metric}/")]
        if known and name != "score" and measure not in known:
            raise InputError(
                f"metric '{metric}' gives the first {len(run.questions)} questions no measure '{name}'",
                f"Name another: {metric}/score, {', '.join(known)}; or set pruning.first higher if few have one",
            )


def _report_values(trial: Trial, run: Run, questions: list[str], parts: SweepResources) -> Values:
    """Note in the study the values so far, and return them."""
    values = values_of(run, questions)
    note(trial, VALUES, values)
    if len(parts.config.objectives) == 1 and (mean := mean_of(values, parts.config.objectives[0].measure)) is not None:
        with unless_taken_up():
            trial.report(mean, step=len(questions))  # samplers learn from it if the trial is pruned
    return values


def _fate(study: Study, trial: Trial, values: Values, config: SweepConfig, size: int, *, last: bool) -> str:
    """`complete` if the trial is, or why it is pruned; empty if it goes on."""
    if last:
        missing = [o.measure for o in config.objectives if mean_of(values, o.measure) is None]
        return f"no question has a value of {', '.join(missing)}" if missing else _COMPLETE
    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
    others = [t for t in study.trials(states) if t.number != trial.number and answered(t) >= size]
    goes = goes_on(
        values,
        [values_of_trial(t) for t in others],
        size,
        objectives=config.objectives,
        constraints=config.constraints,
        growth=config.pruning.growth,
    )
    return "" if goes else f"behind others after {size} questions"


def _end(study: Study, trial: Trial, parts: SweepResources, values: Values, state: str) -> None:
    means = [mean_of(values, o.measure) for o in parts.config.objectives] if state == _COMPLETE else []
    if state != _COMPLETE:
        note(trial, PROBLEM, state)
    study.end(trial, [mean for mean in means if mean is not None], violations(parts.config.constraints, values))
