"""A trial: the program of its parameters answers growing sets of the sweep's questions until it falls behind others."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NoReturn

from optuna import TrialPruned
from optuna.trial import Trial

from typedrag.core.errors import InputError, StepFailed, TypedRAGError
from typedrag.experiments.evaluate import answer_and_judge, open_run
from typedrag.experiments.executors import LocalExecutor
from typedrag.experiments.held_out import with_objective
from typedrag.experiments.results import Run, question_items, restore_run, summarize
from typedrag.experiments.tracking.tracker import PARENT, Tracker, log_run, trace_calls
from typedrag.lms.cost import CostTracker, track_cost
from typedrag.metrics.objective import measurable_ids
from typedrag.optimizers.sweep import study
from typedrag.optimizers.sweep.space import params_key
from typedrag.optimizers.sweep.study import Sweep
from typedrag.runs import Progress, Stopper

TRIALS = "trials"
POINT_TAG, STATE_TAG, NUMBER_TAG = "typedrag.point", "typedrag.state", "typedrag.trial"


class Paused(Exception):
    """The sweep ends before the trial does; the trial is left to whoever continues the sweep."""


def run_trial(
    sweep: Sweep,
    trial: Trial,
    *,
    stop: Stopper,
    reason_to_stop: Callable[[], str],
    parent: str,
    on_progress: Callable[[Progress], None],
    on_notice: Callable[[str], None],
) -> list[float]:
    """Measure the parameters of a trial, whose LM replies are kept, and return the values of the objectives."""
    parts, base = sweep.parts, sweep.parts.base
    config, here, account = parts.config, parts.components(trial.params), CostTracker()
    # that of a trial whose parameters it makes again is its own
    trial.set_user_attr(study.SPENT, account.spent.to_dict())
    try:
        with _track_spending(trial, account), track_cost(account):
            named = parts.program_config(trial.params, name=f"trial-{trial.number}")
            program = here.program(named)
    except (InputError, StepFailed) as error:  # of these parameters alone; others may work
        prune(sweep, trial, str(error))
    folder, questions = parts.out / TRIALS / str(trial.number), base.questions
    sizes = study.question_sets(len(questions), config.pruning)
    executor = LocalExecutor(program, here.metrics)
    tracker = Tracker(config.tracking, parts.base.redactor, on_notice)
    notes = {"knobs": dict(trial.params), "trial": trial.number}
    measurable = measurable_ids(here.metrics.values(), base.examples)
    with open_run(
        here, named, folder, resume=True, questions=questions[: sizes[0]], notes=notes, durable=False
    ) as held:  # answers lost from it are found among the stored replies
        _begin_tracking(tracker, trial, restore_run(held.store.read(), folder), parent, on_notice)
        stopped, state = "a fault ended it", ""
        try:
            for size in sizes:
                held.store.plan(question_items(questions[:size]))
                with _track_spending(trial, account), trace_calls(tracker):
                    ended = answer_and_judge(
                        here, executor, held, base.examples[:size], name=named.name, account=account,
                        tracker=tracker, stop=stop, on_progress=on_progress,
                    )  # fmt: skip
                stopped = ended.stopped
                if stopped and stop(ended.progress):
                    raise Paused
                run = with_objective(restore_run(held.store.read(), folder), config.weights, measurable)
                if size == sizes[0]:
                    _check_measures(run, parts.measures)
                values = study.collect_values(run, [q.id for q in questions[:size]])
                trial.set_user_attr(study.VALUES, values)
                means = [study.mean_value(values, o.measure) for o in config.objectives]
                if len(means) == 1 and means[0] is not None:
                    trial.report(means[0], step=size)  # samplers learn from it if the trial is pruned
                for name, excess in study.violations(config.constraints, values).items():
                    trial.set_constraint(name, excess)
                if stopped:
                    state = stopped
                elif size < sizes[-1]:
                    others = [
                        t for t in sweep.trials(*study.BEGUN) if t.number != trial.number and study.answered(t) >= size
                    ]
                    if study.is_behind(values, list(map(study.values_of_trial, others)), size, config):
                        state = f"behind others after {size} questions"
                elif missing := [o.measure for o, mean in zip(config.objectives, means, strict=True) if mean is None]:
                    state = f"no question has a value of {', '.join(missing)}"
                if state:
                    prune(sweep, trial, state)
                if size < sizes[-1] and reason_to_stop():
                    stopped = "the sweep was stopped"
                    raise Paused
            state = "complete"
            return [mean for mean in means if mean is not None]
        finally:
            run = replace(restore_run(held.store.read(), folder), name=named.name)
            tags = {STATE_TAG: state if state in ("", "complete") else f"pruned: {state}"}
            log_run(tracker, run, summarize(run, here.metrics), stopped, tags if state else {})


def prune(sweep: Sweep, trial: Trial, reason: str) -> NoReturn:
    """End a trial before its time, for a reason that is kept with it."""
    trial.set_user_attr(study.PROBLEM, sweep.parts.base.redactor(reason))
    raise TrialPruned


@contextmanager
def _track_spending(trial: Trial, account: CostTracker) -> Iterator[None]:
    try:
        yield
    finally:
        trial.set_user_attr(study.SPENT, {"tokens": account.spent.tokens, **account.spent.to_dict()})


def _begin_tracking(tracker: Tracker, trial: Trial, run: Run, parent: str, on_notice: Callable[[str], None]) -> None:
    """Begin MLflow's run of a trial, or resume that of the trial whose parameters it makes again."""
    tags = {PARENT: parent, POINT_TAG: params_key(trial.params), NUMBER_TAG: str(trial.number)}
    remember = partial(trial.set_user_attr, study.MLFLOW)
    try:
        tracker.begin(run.name, run.settings, trial.user_attrs.get(study.MLFLOW), remember, tags=tags)
    except TypedRAGError as error:  # the store worked when the sweep began
        on_notice(f"trial {trial.number} is not logged to MLflow: {error}")


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
