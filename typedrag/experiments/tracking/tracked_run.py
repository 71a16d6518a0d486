"""A run of MLflow: begun or continued, logged to, and ended."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from typedrag.errors import first_line
from typedrag.experiments.evaluate.config import TrackingConfig
from typedrag.experiments.formats import flattened
from typedrag.experiments.tracking.mlflow_store import connect, faults_of_store
from typedrag.files.text_files import write_text
from typedrag.redaction import cleaned

if TYPE_CHECKING:
    from mlflow.entities import Run as MLflowRun

T = TypeVar("T")

NOTE = "mlflow.json"
"""The file in a folder that names the folder's run in MLflow."""
MEND = "Name another --tracking-uri, or go without: --no-tracking"
PARENT, COMMIT, _TABLES = "mlflow.parentRunId", "mlflow.source.git.commit", "mlflow.loggedArtifacts"
_LONGEST_PARAMETER = 6000
_MOST_AT_ONCE = 100


class TrackedRun:
    """Logs a run to MLflow, unless tracking is off.

    Args:
        config: The settings of tracking.
        redact: Hides keys and addresses.
        on_notice: Called with what could not be logged. Once the run is made, such faults are no reason to fail.

    Attributes:
        id: The run's id; empty if nothing is logged.
        client: MLflow's client.
        lost: True if something could not be logged: every call to a store that is gone has to wait.
    """

    def __init__(
        self, config: TrackingConfig, redact: Callable[[str], str], on_notice: Callable[[str], object]
    ) -> None:
        self.config = config
        self.redact = redact
        self.id = ""
        self.client: Any = None
        self.lost = False
        self._notify = on_notice

    def begin(
        self,
        name: str,
        settings: Mapping[str, Any],
        known: str | None = None,
        note: Callable[[str], object] = lambda run: None,
        *,
        tags: Mapping[str, str] | None = None,
        mend: str = MEND,
    ) -> MLflowRun | None:
        """Begin the run, or continue a known one; None if tracking is off.

        Args:
            name: The name of the run.
            settings: The settings that it depends on, as JSON values.
            known: The id of the earlier run, if there is one.
            note: Called with the id of a new run, to remember it.
            tags: Tags of the run; empty ones are left out.
            mend: The hint for an unusable store.

        Raises:
            TypedRAGError: If the store cannot be used.
        """
        if not self.config.enabled:
            return None
        with faults_of_store(self.redact, mend):
            run = self.join(known)
            if run is None:
                run = self._created(self.redact(name))
                note(self.id)
            else:
                self.client.update_run(self.id, status="RUNNING")
            logged = run.data.params
            self.log(params={n: v for n, v in flat(cleaned(dict(settings), self.redact)) if n not in logged})
            of_run = {**(tags or {}), COMMIT: str(settings.get("git commit") or "")}
            self.tag({name: value for name, value in of_run.items() if value})
            return run

    def join(self, known: str | None) -> MLflowRun | None:
        """Join the run with this id; None if the store has no such run, or it was deleted."""
        mlflow = connect(self.config)
        self.client = mlflow.MlflowClient()
        try:
            run: MLflowRun | None = self.client.get_run(known) if known else None
        except mlflow.MlflowException:
            return None
        if run is None or run.info.lifecycle_stage != "active":
            return None
        self.id = run.info.run_id
        return run

    @contextmanager
    def telling(self, what: str, then: str = "") -> Iterator[None]:
        """Turn an error within the context into a notice that `what` could not be told, followed by `then`."""
        try:
            yield
        except Exception as error:  # MLflow, SQLAlchemy, requests and others each raise their own
            self.lost = True
            self._notify(f"MLflow could not be told {what}: {self.redact(first_line(error))}{then}")

    def log(
        self,
        metrics: Mapping[str, float] | None = None,
        params: Mapping[str, str] | None = None,
        *,
        step: int = 0,
        run: str = "",
    ) -> None:
        """Log numbers and settings of this run, or of a run nested in it."""
        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        for numbers in _parts(metrics or {}):
            entries = [Metric(name, float(value), now, step) for name, value in numbers.items()]
            self.client.log_batch(run or self.id, metrics=entries)
        for texts in _parts(params or {}):
            self.client.log_batch(run or self.id, params=[Param(n, v) for n, v in texts.items()])

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags of the run."""
        for name, value in tags.items():
            self.client.set_tag(self.id, name, self.redact(value))

    @contextmanager
    def artifacts(self, table: str = "") -> Iterator[Path]:
        """Yield a folder whose files become artifacts of the run; MLflow shows `table` among them, see `table_of`."""
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
            self.client.log_artifacts(self.id, folder)
        if table:
            self.client.set_tag(self.id, _TABLES, json.dumps([{"path": table, "type": "table"}]))

    def end(self, *, stopped: bool) -> None:
        """End the run."""
        self.client.set_terminated(self.id, "KILLED" if stopped else "FINISHED")

    def _created(self, name: str) -> MLflowRun:
        import mlflow
        from mlflow.tracking.context.registry import resolve_tags

        experiment = mlflow.get_experiment_by_name(self.config.experiment)
        run: MLflowRun = self.client.create_run(experiment.experiment_id, run_name=name, tags=resolve_tags())
        self.id = run.info.run_id
        return run


def noted(folder: Path) -> str | None:
    """The id of a folder's run in MLflow; None if it has none."""
    try:
        return str(json.loads((folder / NOTE).read_text("utf-8"))["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def note(folder: Path, run: str) -> None:
    """Note the id of a folder's run in MLflow; the folder is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / NOTE, json.dumps({"run": run}) + "\n")


def table_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows in the format of MLflow's `log_table`, which itself would append them to those of an earlier session.

    Example:
        >>> table_of([{"a": 1}, {"b": 2}])
        '{"columns": ["a", "b"], "data": [[1, null], [null, 2]]}'
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[row.get(name) for name in columns] for row in rows]
    return json.dumps({"columns": columns, "data": cells}, ensure_ascii=False)


def flat(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield nested settings as parameters of MLflow.

    Example:
        >>> dict(flat({"options": {"top_k": 5}, "lm": "vllm:m"}))
        {'options.top_k': '5', 'lm': 'vllm:m'}
    """
    for name, value in flattened(values):
        if value != {}:
            yield re.sub(r"[^\w./ -]", "_", name), str(value)[:_LONGEST_PARAMETER]


def _parts(values: Mapping[str, T]) -> Iterator[dict[str, T]]:
    """Yield parts as large as MLflow accepts at once."""
    items = iter(values.items())
    while part := dict(islice(items, _MOST_AT_ONCE)):
        yield part
