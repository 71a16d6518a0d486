"""Log a sweep to MLflow: a run for the study, with figures and nested runs of the trials."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from typedrag.experiments.loading import ARTIFACT
from typedrag.experiments.tracking.registration import copy_redacted, log_model, register_model
from typedrag.experiments.tracking.tracked_run import TrackedRun, table_of
from typedrag.lms.spending import Spending
from typedrag.optimizers.compile.tracking import RISK
from typedrag.optimizers.sweep.config import SweepConfig
from typedrag.optimizers.sweep.figures import write_figures
from typedrag.optimizers.sweep.objectives import mean_of
from typedrag.optimizers.sweep.study import MLFLOW, PROBLEM, SPENT, Study, is_feasible, spent_on, values_of_trial
from typedrag.programs.artifact.compiled import Compiled, Verdict
from typedrag.redaction import Redactor

TRIALS, PROGRAM = "trials.json", "program"


class SweepTracker:
    """Logs the study to MLflow, unless tracking is off. Workers share its run."""

    def __init__(self, config: SweepConfig, redact: Redactor, on_notice: Callable[[str], None]) -> None:
        self._name = config.name
        self._run = TrackedRun(config.tracking, redact, on_notice)

    @property
    def run_id(self) -> str:
        """The id of the run; empty if nothing is logged."""
        return self._run.id

    def begin(self, study: Study, settings: Mapping[str, Any], risk: str = "") -> None:
        """Begin MLflow's run, or join the study's run if it has one.

        Args:
            risk: The risk of optimizing these measures, logged as a tag.

        Raises:
            TypedRAGError: If the store cannot be used.
        """
        remember = partial(study.optuna.set_user_attr, MLFLOW)
        mend = "Name another tracking.uri, or go without: tracking.enabled: false"
        with study.storage.alone():
            known = study.optuna.user_attrs.get(MLFLOW)
            self._run.begin(self._name, settings, known, remember, tags={RISK: risk}, mend=mend)

    def end(self, study: Study, best: Sequence[FrozenTrial], stopped: str) -> None:
        """Log the results of all workers' trials.

        Args:
            stopped: Why this worker stopped; empty if nothing is left to do.
        """
        if not self.run_id:
            return
        with self._run.telling(f"of sweep '{self._name}'", ". Nothing is lost: the same command tells it again"):
            self._run.log(self._metrics(study, best))
            with self._run.artifacts(TRIALS) as folder:
                (folder / TRIALS).write_text(_table(study, best), "utf-8")
                write_figures(study, folder)
            self._run.tag({"stopped": stopped})
            if not study.trials((TrialState.RUNNING,)):
                self._run.end(stopped=bool(stopped))

    def tell_best(
        self,
        study: Study,
        metrics: Mapping[str, float],
        folder: Path,
        verdict: Verdict,
        register_as: str | None = None,
    ) -> str:
        """Log the best's measures on held-out questions, and its program.

        Args:
            folder: The folder of the program and its result.
            verdict: The verdict on the best, logged as a tag.
            register_as: The registered model that the program becomes a version of, if any.

        Returns:
            The version, as `models:/NAME/VERSION`; empty if it is none.
        """
        if not self._run.config.enabled:
            return ""
        with self._run.telling("of the best"):
            if self._run.join(study.optuna.user_attrs.get(MLFLOW)):
                self._run.log(metrics)
                self._run.tag({"verdict": verdict})
                self._run.client.log_artifacts(self.run_id, str(folder), folder.name)
                if register_as:
                    return self._register(folder / PROGRAM, register_as)
        return ""

    def _register(self, program: Path, name: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, ARTIFACT)
            parts = copy_redacted(program, copy, self._run.redact)
            model_id = log_model(self._run.client, self.run_id, copy, parts)
            return register_model(self._run.client, self.run_id, model_id, name, Compiled.read(copy).about)

    def _metrics(self, study: Study, best: Sequence[FrozenTrial]) -> dict[str, float]:
        trials = study.trials()
        counts = {f"trials/{s.name.lower()}": sum(t.state == s for t in trials) for s in TrialState}
        metrics = {name: float(n) for name, n in counts.items()}
        metrics |= sum(map(spent_on, trials), Spending()).metrics
        if best:
            metrics |= {f"best/{o.measure}": v for o, v in zip(study.objectives, best[0].values, strict=True)}
        return metrics


def _table(study: Study, best: Sequence[FrozenTrial]) -> str:
    """The trials in the format of MLflow's tables."""
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
    return table_of(rows)
