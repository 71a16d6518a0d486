"""Telling MLflow of a sweep: a run for the study, in which those of the trials are nested, with figures."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from typedrag.errors import first_line
from typedrag.experiments.tracking.mlflow_store import connect, faults_of_store, find_run, flat, parts
from typedrag.optimizers.compile.tracking import RISK
from typedrag.optimizers.sweep.config import SweepConfig
from typedrag.optimizers.sweep.figures import write_figures
from typedrag.optimizers.sweep.objectives import mean_of
from typedrag.optimizers.sweep.study import MLFLOW, PROBLEM, SPENT, Study, is_feasible, values_of_trial
from typedrag.programs.artifact.compiled import Verdict
from typedrag.redaction import Redactor

TRIALS = "trials.json"


class SweepTracker:
    """Tells MLflow of the study, or nothing if that is switched off. Workers share its run.

    Args:
        config: Of the sweep.
        redact: Hides keys and addresses.
        on_notice: Told of what could not be tracked. Once trials are made, that is no reason to fail.
    """

    def __init__(self, config: SweepConfig, redact: Redactor, on_notice: Callable[[str], None]) -> None:
        self._config = config
        self._redact = redact
        self._notify = on_notice
        self._client: Any = None
        self.run_id = ""

    def begin(self, study: Study, settings: Mapping[str, Any], risk: str = "") -> None:
        """Begin MLflow's run, or join the one that the study has.

        Args:
            study: Which remembers it.
            settings: What the trials depend on.
            risk: What it risks to look for this; a tag.

        Raises:
            TypedRAGError: If the store cannot be used.
        """
        if not self._config.tracking.enabled:
            return
        with faults_of_store(self._redact, "Name another tracking.uri, or go without: tracking.enabled: false"):
            mlflow = connect(self._config.tracking)
            self._client = mlflow.MlflowClient()
            with study.storage.alone():
                known = find_run(study.optuna.user_attrs.get(MLFLOW))
                if known is None:
                    experiment = mlflow.get_experiment_by_name(self._config.tracking.experiment)
                    known = self._client.create_run(experiment.experiment_id, run_name=self._config.name)
                    study.optuna.set_user_attr(MLFLOW, known.info.run_id)
                    self._log_parameters(known.info.run_id, settings)
            self.run_id = known.info.run_id
            self._client.update_run(self.run_id, status="RUNNING")
            if risk:
                self._client.set_tag(self.run_id, RISK, risk)

    def end(self, study: Study, best: Sequence[FrozenTrial], stopped: str) -> None:
        """Tell what the trials of all workers came to.

        Args:
            study: Their trials.
            best: The front.
            stopped: Why this worker stopped; empty if nothing is left to do.
        """
        if not self.run_id:
            return
        try:
            for name, value in self._metrics(study, best).items():
                self._client.log_metric(self.run_id, name, value)
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, TRIALS).write_text(json.dumps(_table(study, best), ensure_ascii=False), "utf-8")
                write_figures(study, Path(folder))
                self._client.log_artifacts(self.run_id, folder)
            tables = json.dumps([{"path": TRIALS, "type": "table"}])
            self._client.set_tag(self.run_id, "mlflow.loggedArtifacts", tables)
            self._client.set_tag(self.run_id, "stopped", self._redact(stopped))
            if not study.trials((TrialState.RUNNING,)):
                self._client.set_terminated(self.run_id, "KILLED" if stopped else "FINISHED")
        except Exception as error:  # of MLflow, SQLAlchemy, requests, ...
            self._notify(
                f"MLflow could not be told of sweep '{self._config.name}': {self._redact(first_line(error))}. "
                "Nothing is lost: the same command tells it again"
            )

    def tell_best(self, study: Study, metrics: Mapping[str, float], folder: Path, verdict: Verdict) -> None:
        """Tell how the best fares on held-out questions, and keep its program.

        Args:
            study: That it is of.
            metrics: By name.
            folder: Of the program and what is known of it.
            verdict: On it; a tag.
        """
        if not self._config.tracking.enabled:
            return
        try:
            self._client = connect(self._config.tracking).MlflowClient()
            run = find_run(study.optuna.user_attrs.get(MLFLOW))
            if run is None:
                return
            for name, value in metrics.items():
                self._client.log_metric(run.info.run_id, name, value)
            self._client.set_tag(run.info.run_id, "verdict", verdict)
            self._client.log_artifacts(run.info.run_id, str(folder), folder.name)
        except Exception as error:  # as in end
            self._notify(f"MLflow could not be told of the best: {self._redact(first_line(error))}")

    def _log_parameters(self, run_id: str, settings: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        values = {name: self._redact(value) for name, value in flat(dict(settings))}
        for part in parts(values):
            self._client.log_batch(run_id, params=[Param(name, value) for name, value in part.items()])

    def _metrics(self, study: Study, best: Sequence[FrozenTrial]) -> dict[str, float]:
        trials = study.trials()
        counts = {f"trials/{s.name.lower()}": sum(t.state == s for t in trials) for s in TrialState}
        spent = [trial.user_attrs.get(SPENT, {}) for trial in trials]
        found = {name: float(n) for name, n in counts.items()}
        found |= {f"spent/{name}": float(sum(s.get(name, 0) for s in spent)) for name in ("lm_calls", "tokens")}
        if best:
            found |= {f"best/{o.measure}": v for o, v in zip(study.objectives, best[0].values, strict=True)}
        return found


def _table(study: Study, best: Sequence[FrozenTrial]) -> dict[str, Any]:
    """The trials in the form of MLflow's own tables."""
    on_front = {trial.number for trial in best}
    rows = []
    for trial in study.trials():
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
            values = values_of_trial(trial)
            rows.append(
                {
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
            )
    columns = list(rows[0]) if rows else []
    return {"columns": columns, "data": [list(row.values()) for row in rows]}
