"""One trial: a point's program answers growing sets of the sweep's questions, as long as it does not fall behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from optuna.trial import Trial, TrialState

from typedrag.errors import CallFailed, InputError, StepFailed, TypedRAGError
from typedrag.experiments.compare.weighted import with_objective
from typedrag.experiments.evaluate.evaluate import Progress, complete_run
from typedrag.experiments.evaluate.results import Run
from typedrag.experiments.evaluate.run_store import RunStore, is_run, read_run
from typedrag.experiments.evaluate.summary import summarize
from typedrag.experiments.tracking.runs import Tracker
from typedrag.lms.spending import Account, charging
from typedrag.optimizers.sweep.components import SweepComponents
from typedrag.optimizers.sweep.config import SweepConfig
from typedrag.optimizers.sweep.objectives import Values, mean_of, values_of, violations
from typedrag.optimizers.sweep.pruning import goes_on, question_sets
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

TRIALS = "trials"
POINT_TAG, STATE_TAG, NUMBER_TAG = "typedrag.point", "typedrag.state", "typedrag.trial"


class Paused(Exception):
    """The sweep is to end before the trial has; the trial is left to who continues the sweep."""


def run_trial(
    parts: SweepComponents,
    study: Study,
    trial: Trial,
    *,
    parent: str = "",
    may_go_on: Callable[[], bool] = lambda: True,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_notice: Callable[[str], None] = lambda notice: None,
) -> None:
    """Make a trial, from where it was left if it was begun before.

    Args:
        parent: The id of MLflow's run of the study; empty if there is none.
        may_go_on: Asked before each further set of questions.

    Raises:
        InputError: If a measure that is wanted is none of its metric's; what was done is kept.
        Paused: If it may not go on; the same.
        LMUnavailable: If an LM cannot be used; the same.
        RetrievalError: If the index or a reranker cannot be used; the same.
    """
    point, base = trial.params, parts.base
    of_lm = parts.of_lm(parts.lm_of(point))
    account = Account()
    try:
        with _told(trial, account), charging(account):
            wanted = parts.program_of(point, name=f"trial-{trial.number}")
            program = of_lm.program(wanted)
    except (InputError, StepFailed) as error:  # of this point alone, for which it is no fault of others
        _end(study, trial, parts, {}, parts.redactor(str(error)))
        return
    folder = parts.out / TRIALS / key_of(point)
    held = read_run(folder).planned if is_run(folder) else 0
    sizes = [n for n in question_sets(len(base.questions), parts.config.pruning) if n >= held]
    tags = {POINT_TAG: key_of(point), NUMBER_TAG: str(trial.number)}
    tracker = Tracker(parts.config.tracking, parts.redactor, on_notice, parent=parent, tags=tags)
    notes = {**of_lm.notes(wanted), "knobs": dict(point), "trial": trial.number}
    settings, questions = of_lm.settings(wanted), base.questions
    begun = questions[: sizes[0]]
    with RunStore(
        folder, begun, settings, notes=notes, resume=True, redact=parts.redactor, durable=False
    ) as store:  # what is not held here is found among the replies
        try:
            tracker.begin(store)
        except TypedRAGError as error:  # it was there when the sweep began
            on_notice(f"MLflow is not told of trial {trial.number}: {error}")
        state, stopped = "", "a fault ended it"
        try:
            for size in sizes:
                store.grow(questions[:size])
                with _told(trial, account):
                    stopped = complete_run(
                        of_lm, program, store, base.examples[:size], account, tracker=tracker, on_progress=on_progress
                    )
                done = with_objective(store.read(), parts.config.weights)
                if size == sizes[0]:
                    _check_measures(done, parts.measures)
                values = _tell(trial, done, [q.id for q in questions[:size]], parts)
                state = stopped or _fate(study, trial, values, parts.config, size, last=size == sizes[-1])
                if state:
                    break
                if not may_go_on():
                    stopped = "the sweep was stopped"
                    raise Paused
            _end(study, trial, parts, values, state)
            tracker.tag(STATE_TAG, "complete" if state == _COMPLETE else f"pruned: {state}")
        finally:
            run = replace(store.read(), name=wanted.name)
            tracker.end(run, summarize(run, base.metrics), stopped)


def fail_trial(study: Study, trial: Trial, parts: SweepComponents, fault: CallFailed) -> None:
    """End a trial whose every question an LM fails at that answers those of others."""
    _end(study, trial, parts, {}, parts.redactor(str(fault)))


_COMPLETE = "complete"


@contextmanager
def _told(trial: Trial, account: Account) -> Iterator[None]:
    """Let the study know what the trial has spent, however that ends.

    What was spent on its point before it was taken up again is told by the trial before.
    """
    try:
        yield
    finally:
        note(trial, SPENT, {"tokens": account.spent.tokens, **account.spent.to_dict()})


def _check_measures(run: Run, wanted: Iterable[str]) -> None:
    """Refuse a measure that its metric does not give, once it is known what it gives."""
    for measure in wanted:
        metric, _, name = measure.partition("/")
        given = [m for m in run.measures if m.startswith(f"{metric}/")]
        if given and name != "score" and measure not in given:
            raise InputError(
                f"metric '{metric}' gives the first {len(run.questions)} questions no measure '{name}'",
                f"Name another: {metric}/score, {', '.join(given)}; or set pruning.first higher if few have one",
            )


def _tell(trial: Trial, run: Run, questions: list[str], parts: SweepComponents) -> Values:
    """Let the study know what was measured so far."""
    values = values_of(run, questions)
    note(trial, VALUES, values)
    if len(parts.config.objectives) == 1 and (mean := mean_of(values, parts.config.objectives[0].measure)) is not None:
        with unless_taken_up():
            trial.report(mean, step=len(questions))  # from which Optuna's samplers learn where a trial is pruned
    return values


def _fate(study: Study, trial: Trial, values: Values, config: SweepConfig, size: int, *, last: bool) -> str:
    """Whether a trial is complete, or why it is pruned; empty if it goes on."""
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


def _end(study: Study, trial: Trial, parts: SweepComponents, values: Values, state: str) -> None:
    means = [mean_of(values, o.measure) for o in parts.config.objectives] if state == _COMPLETE else []
    if state != _COMPLETE:
        note(trial, PROBLEM, state)
    study.end(trial, [mean for mean in means if mean is not None], violations(parts.config.constraints, values))
