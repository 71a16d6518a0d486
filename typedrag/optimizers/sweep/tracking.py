"""Log a sweep to MLflow: a run for the study, with figures and nested runs of the trials."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from typedrag.experiments.tracking.registry import log_model
from typedrag.experiments.tracking.tracker import Tracker
from typedrag.lms.cost import Spending
from typedrag.optimizers.compile.tracking import RISK
from typedrag.optimizers.sweep.figures import write_figures
from typedrag.optimizers.sweep.objectives import mean_of
from typedrag.optimizers.sweep.study import MLFLOW, PROBLEM, SPENT, Study, is_feasible, spent_on, values_of_trial
from typedrag.programs.artifact.compiled import Verdict

PROGRAM = "program"


def begin_sweep(tracker: Tracker, study: Study, settings: Mapping[str, Any], risk: str) -> None:
    """Begin MLflow's run, or join that of the study's other workers; see `Tracker.begin`.

    Args:
        risk: The risk of optimizing these measures, logged as a tag.
    """
    remember = partial(study.optuna.set_user_attr, MLFLOW)
    hint = "Name another tracking.uri, or go without: tracking.enabled: false"
    with study.storage.alone():
        run_id = study.optuna.user_attrs.get(MLFLOW)
        tracker.begin(study.optuna.study_name, settings, run_id, remember, tags={RISK: risk}, hint=hint)


def log_sweep(tracker: Tracker, study: Study, best: Sequence[FrozenTrial], stopped: str) -> None:
    """Log the results of all workers' trials.

    Args:
        stopped: Why this worker stopped; empty if nothing is left to do.
    """
    if not tracker.id:
        return
    with tracker.attempt(f"sweep '{tracker.name}'", "Nothing is lost: the same command logs it"):
        trials = study.trials()
        tracker.log({f"trials/{s.name.lower()}": sum(t.state == s for t in trials) for s in TrialState})
        tracker.log(sum(map(spent_on, trials), Spending()).metrics)
        if best:
            tracker.log({f"best/{o.measure}": v for o, v in zip(study.objectives, best[0].values, strict=True)})
        tracker.table("trials.json", list(_rows(study, best)))
        with tempfile.TemporaryDirectory() as folder:
            write_figures(study, Path(folder))
            tracker.artifacts(Path(folder))
        tracker.tag({"stopped": stopped})
        if not study.trials((TrialState.RUNNING,)):
            tracker.end(stopped=bool(stopped))


def log_best(
    tracker: Tracker,
    study: Study,
    metrics: Mapping[str, float],
    folder: Path,
    verdict: Verdict,
    register_as: str | None = None,
) -> str:
    """Log the best's measures on held-out questions, and its program, with the study's run.

    Args:
        folder: The folder of the program and its result.
        verdict: The verdict on the best, logged as a tag.
        register_as: The registered model that the program becomes a version of, if any.

    Returns:
        The version, as `models:/NAME/VERSION`; empty if it is none.
    """
    if not tracker.config.enabled:
        return ""
    with tracker.attempt("the best", "The same command logs it"):
        if tracker.resume(study.optuna.user_attrs.get(MLFLOW)):
            tracker.log(metrics)
            tracker.tag({"verdict": verdict})
            tracker.artifacts(folder, folder.name)
            if register_as:
                return log_model(tracker, folder / PROGRAM, register_as)
    return ""


def _rows(study: Study, best: Sequence[FrozenTrial]) -> Iterator[dict[str, Any]]:
    on_front = {trial.number for trial in best}
    for trial in study.trials():
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
            values = values_of_trial(trial)
            yield {
                "trial": trial.number,
                "state": trial.state.name.lower(),
                "on front": trial.number in on_front,
                "keeps to constraints": is_feasible(trial),
                "questions": max((len(column) for column in values.values()), default=0),
                **{name: trial.params.get(name) for name in study.space.distributions},
                **{o.measure: mean_of(values, o.measure) for o in study.objectives},
                **{f"spent {name}": n for name, n in trial.user_attrs.get(SPENT, {}).items()},
                "why it was pruned": trial.user_attrs.get(PROBLEM, ""),
            }
