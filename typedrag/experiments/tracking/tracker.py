"""Runs in MLflow: begun or resumed, logged to, and ended."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

from typedrag.core.errors import first_line
from typedrag.core.redaction import redact_values
from typedrag.experiments.evaluate.config import TrackingConfig
from typedrag.experiments.formats import flattened
from typedrag.experiments.tracking.mlflow_store import connect, faults_of_store
from typedrag.files.text_files import write_text

PARENT, _COMMIT, _TABLES = "mlflow.parentRunId", "mlflow.source.git.commit", "mlflow.loggedArtifacts"
_RUN_OF_TRACE = "mlflow.sourceRun"
_ID_FILE = "mlflow.json"
_HINT = "Name another --tracking-uri, or go without: --no-tracking"
_LONGEST_PARAMETER, _MOST_CHILDREN = 6000, 10_000


class Tracker:
    """A run in MLflow; nothing is logged where tracking is off.

    Args:
        config: The settings of tracking.
        redact: Hides keys and addresses.
        notify: Called with what could not be logged: once the run exists, such faults do not end the work.

    Attributes:
        id: The run's id; empty if nothing is logged.
        name: The run's name.
        finished: True if the run has ended well.
        failed: True if something could not be logged: every call to a store that is gone has to wait.
    """

    def __init__(self, config: TrackingConfig, redact: Callable[[str], str], notify: Callable[[str], object]) -> None:
        self.config, self.redact = config, redact
        self.id = self.name = ""
        self.finished = self.failed = False
        self.client: Any = None
        self._notify = notify
        self._experiment = ""
        self._children: dict[str, Tracker] | None = None

    @property
    def works(self) -> bool:
        """True if there is a run and its store has not failed."""
        return bool(self.id) and not self.failed

    def begin(
        self,
        name: str,
        settings: Mapping[str, Any],
        run_id: str | None = None,
        remember: Callable[[str], object] = lambda run_id: None,
        *,
        tags: Mapping[str, str] | None = None,
        hint: str = _HINT,
    ) -> None:
        """Begin the run, or resume an earlier one, unless tracking is off.

        Args:
            settings: The settings that the run depends on, as JSON values.
            run_id: The id of the earlier run, if there is one.
            remember: Called with the id of a new run.
            tags: Tags of the run; empty ones are left out.
            hint: What to do if the store cannot be used.
        """
        if not self.config.enabled:
            return
        self.name = self.redact(name)
        with faults_of_store(self.redact, hint):
            if self.resume(run_id):
                self.client.update_run(self.id, status="RUNNING")
            else:
                from mlflow.tracking.context.registry import resolve_tags

                self.id = self.client.create_run(self._experiment, run_name=self.name, tags=resolve_tags()).info.run_id
                remember(self.id)
            self.log_settings(settings)
            named = {**(tags or {}), _COMMIT: str(settings.get("git commit") or "")}
            self.tag({tag: value for tag, value in named.items() if value})

    def begin_folder(self, folder: Path, settings: Mapping[str, Any], tags: Mapping[str, str] | None = None) -> None:
        """Begin the run of a folder, whose name it has and where its id is kept; see `begin`."""
        file = folder / _ID_FILE
        try:
            run_id = str(json.loads(file.read_text("utf-8"))["run"])
        except (OSError, ValueError, KeyError, TypeError):
            run_id = None

        def remember(new: str) -> None:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps({"run": new}) + "\n")

        self.begin(folder.resolve().name, settings, run_id, remember, tags=tags)

    def resume(self, run_id: str | None) -> bool:
        """Connect to the store and log to the run with this id; False if there is none, or it was deleted."""
        mlflow = connect(self.config)
        self.client = mlflow.MlflowClient()
        self._experiment = mlflow.get_experiment_by_name(self.config.experiment).experiment_id
        try:
            run = self.client.get_run(run_id) if run_id else None
        except mlflow.MlflowException:
            return False
        if run is None or run.info.lifecycle_stage != "active":
            return False
        self.id, self.name, self._experiment = run.info.run_id, run.info.run_name, run.info.experiment_id
        return True

    def child(self, name: str, tags: Mapping[str, str]) -> Tracker:
        """The nested run of this name, also of an earlier session; begun if there is none."""
        if self._children is None:
            query = f"tags.`{PARENT}` = '{self.id}'"
            runs = self.client.search_runs([self._experiment], query, max_results=_MOST_CHILDREN)
            self._children = {run.info.run_name: self._nested(run) for run in runs}
        if name not in self._children:
            run = self.client.create_run(self._experiment, run_name=name, tags={PARENT: self.id, **tags})
            self._children[name] = self._nested(run)
        return self._children[name]

    def _nested(self, run: Any) -> Tracker:
        child = copy(self)
        child.id, child.name, child.finished = run.info.run_id, run.info.run_name, run.info.status == "FINISHED"
        child._children = None
        return child

    @contextmanager
    def attempt(self, what: str, consequence: str) -> Iterator[None]:
        """Turn an error within the context into a notice that `what` could not be logged, and what follows."""
        try:
            yield
        except Exception as error:  # MLflow, SQLAlchemy, requests and others each raise their own
            self.failed = True
            self._notify(f"could not log {what} to MLflow: {self.redact(first_line(error))}. {consequence}")

    def log(self, values: Mapping[str, float], step: int = 0) -> None:
        """Log metrics."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.client.log_batch(self.id, [Metric(name, float(value), now, step) for name, value in values.items()])

    def log_settings(self, settings: Mapping[str, Any]) -> None:
        """Log the settings that the run does not have yet as parameters, which MLflow never changes."""
        from mlflow.entities import Param

        logged = self.client.get_run(self.id).data.params
        values = _parameters(redact_values(settings, self.redact))
        self.client.log_batch(self.id, params=[Param(name, text) for name, text in values if name not in logged])

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags of the run."""
        for name, value in tags.items():
            self.client.set_tag(self.id, name, self.redact(value))

    def artifact(self, name: str, text: str) -> None:
        """Log a text file."""
        self.client.log_text(self.id, self.redact(text), name)

    def artifacts(self, folder: Path, target: str = "") -> None:
        """Log the files of a folder, into a folder of the run if one is named."""
        self.client.log_artifacts(self.id, str(folder), target or None)

    def table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log rows as a table that MLflow shows; its own `log_table` would append them to an earlier session's."""
        columns = list(dict.fromkeys(column for row in rows for column in row))
        cells = [[row.get(column) for column in columns] for row in rows]
        self.artifact(name, json.dumps({"columns": columns, "data": cells}, ensure_ascii=False))
        self.client.set_tag(self.id, _TABLES, json.dumps([{"path": name, "type": "table"}]))

    @contextmanager
    def span(self, name: str, question: str) -> Iterator[None]:
        """Gather the calls within the context in a trace of the run, if calls are traced; see `trace_calls`."""
        if not (self.id and self.config.tracing):
            yield
            return
        import mlflow
        from mlflow.entities.trace_location import MlflowExperimentLocation

        fault: BaseException | None = None
        place = MlflowExperimentLocation(self._experiment)  # else that of a run that the caller has begun
        with mlflow.start_span(name, attributes={"question": question}, trace_destination=place) as span:
            if mlflow.get_current_active_span():  # MLflow samples traces, and may leave this one out
                mlflow.update_current_trace({"question": question, "step": name}, {_RUN_OF_TRACE: self.id})
            try:
                yield
            except BaseException as error:  # MLflow would keep its message, which may hold a key
                fault = error
                span.set_status("ERROR")
        if fault is not None:
            raise fault

    def end(self, *, stopped: bool = False) -> None:
        """End the run."""
        self.client.set_terminated(self.id, "KILLED" if stopped else "FINISHED")
        self.finished = not stopped


def check_store(config: TrackingConfig, redact: Callable[[str], str]) -> None:
    """Raise an `Unavailable` for a store that cannot be used, before a folder is made that blocks the next attempt."""
    if config.enabled:
        with faults_of_store(redact, _HINT):
            connect(config)


def _parameters(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield nested settings as parameters of MLflow.

    Example:
        >>> dict(_parameters({"options": {"top_k": 5}, "lm": "vllm:m"}))
        {'options.top_k': '5', 'lm': 'vllm:m'}
    """
    for name, value in flattened(settings):
        if value != {}:
            yield re.sub(r"[^\w./ -]", "_", name), str(value)[:_LONGEST_PARAMETER]
