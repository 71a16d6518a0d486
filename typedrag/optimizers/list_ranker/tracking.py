"""Telling MLflow of a ranker's training."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from typedrag.errors import first_line
from typedrag.experiments.evaluate.config import TrackingConfig
from typedrag.experiments.tracking.mlflow_store import connect, faults_of_store, find_run, flat, parts
from typedrag.files.text_files import write_text

NOTE = "mlflow.json"


class RankerTracker:
    """Tells MLflow of one training, or nothing if that is switched off.

    Args:
        config: Where and what.
        redact: Hides keys and addresses.
        on_notice: Told of what could not be tracked. Once the run is made, that is no reason to fail.
    """

    def __init__(self, config: TrackingConfig, redact: Callable[[str], str], on_notice: Callable[[str], None]) -> None:
        self._config = config
        self._redact = redact
        self._notify = on_notice
        self._client: Any = None
        self._run_id = ""

    def begin(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Begin MLflow's run, or continue the one that the training in this folder was tracked by before.

        Raises:
            TypedRAGError: If the store cannot be used.
        """
        if not self._config.enabled:
            return
        with faults_of_store(self._redact, "Name another --tracking-uri, or go without: --no-tracking"):
            mlflow = connect(self._config)
            self._client = mlflow.MlflowClient()
            note = folder / NOTE
            run = find_run(json.loads(note.read_text("utf-8"))["run"]) if note.is_file() else None
            if run is None:
                experiment = mlflow.get_experiment_by_name(self._config.experiment)
                run = self._client.create_run(experiment.experiment_id, run_name=folder.resolve().name)
                write_text(note, json.dumps({"run": run.info.run_id}) + "\n")
                for part in parts({n: self._redact(v) for n, v in flat(settings)}):
                    self._log(run.info.run_id, params=part)
            else:
                self._client.update_run(run.info.run_id, status="RUNNING")
            self._run_id = run.info.run_id

    def measure(self, name: str, value: float, step: int) -> None:
        """Tell of a number."""
        self._try(lambda: self._client.log_metric(self._run_id, name, value, step=step))

    def end(self, files: list[Path], *, stopped: bool) -> None:
        """Tell that it is over, and keep small files of it."""

        def tell() -> None:
            for file in files:
                self._client.log_artifact(self._run_id, str(file))
            self._client.set_terminated(self._run_id, "KILLED" if stopped else "FINISHED")

        self._try(tell)

    def _log(self, run_id: str, params: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        self._client.log_batch(run_id, params=[Param(n, v) for n, v in params.items()])

    def _try(self, tell: Callable[[], object]) -> None:
        if not self._run_id:
            return
        try:
            tell()
        except Exception as error:  # of MLflow, SQLAlchemy, requests, ...
            self._run_id = ""  # a store that is gone makes every call wait
            self._notify(f"MLflow is told no more of this training: {self._redact(first_line(error))}")
