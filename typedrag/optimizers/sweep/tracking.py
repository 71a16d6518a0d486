"""Log a sweep to MLflow: a run for the study, with figures and nested runs of the trials."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from typedrag.experiments.tracking.tracker import Tracker
from typedrag.optimizers.compile.tracking import RISK
from typedrag.optimizers.sweep.pruning import mean_of
from typedrag.optimizers.sweep.report import write_figures
from typedrag.optimizers.sweep.study import (
    ENDED,
    IDENTITY,
    MLFLOW,
    PROBLEM,
    SPENT,
    Sweep,
    answered,
    is_feasible,
    spent_on,
    values_of_trial,
)


def begin_sweep(tracker: Tracker, sweep: Sweep) -> None:
    """Begin MLflow's run, or join that of the study's other workers; see `Tracker.begin`."""
    study, attributes = sweep.study, sweep.study.user_attrs
    remember = partial(study.set_user_attr, MLFLOW)
    hint = "Name another tracking.uri, or go without: tracking.enabled: false"
    tags = {RISK: sweep.parts.risk}
    tracker.begin(study.study_name, attributes[IDENTITY], attributes.get(MLFLOW), remember, tags=tags, hint=hint)


def log_sweep(tracker: Tracker, sweep: Sweep, stopped: str) -> None:
    """Log the results of all workers' trials.

    Args:
        stopped: Why this worker stopped; empty if nothing is left to do.
    """
    if not tracker.id:
        return
    with tracker.attempt(f"sweep '{tracker.name}'", "Nothing is lost: the same command logs it"):
        trials, best = sweep.trials(), sweep.front
        tracker.log({f"trials/{s.name.lower()}": sum(t.state == s for t in trials) for s in TrialState})
        tracker.log(spent_on(*trials).metrics)
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
    for trial in sweep.trials(*ENDED):
        values = values_of_trial(trial)
        yield {
            "trial": trial.number,
            "state": trial.state.name.lower(),
            "on front": trial.number in on_front,
            "keeps to constraints": is_feasible(trial),
            "questions": answered(trial),
            **{name: trial.params.get(name) for name in sweep.parts.space.distributions},
            **{o.measure: mean_of(values, o.measure) for o in sweep.parts.config.objectives},
            **{f"spent {name}": n for name, n in trial.user_attrs.get(SPENT, {}).items()},
            "why it was pruned": trial.user_attrs.get(PROBLEM, ""),
        }
