"""MLflow's store: its address, connections to it, and its faults."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from platformdirs import user_data_dir

from typedrag.core.errors import InputError, TypedRAGError, Unavailable, first_line
from typedrag.core.extras import require
from typedrag.experiments.evaluate.config import TrackingConfig
from typedrag.files.locks import wait_for_lock
from typedrag.files.text_files import PART, temporary_path

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # nobody else needs to know what is evaluated
    # By MLflow's defaults, ten threads wait for one another to write five spans each to SQLite, which takes
    # twice the time, and spans beyond a queue of 1,000 are dropped.
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_WORKERS": "1",
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_SPAN_BATCH_SIZE": "500",
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_QUEUE_SIZE": "100000",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # runs have only a few small files
    "MLFLOW_UV_AUTO_DETECT": "false",  # it would copy files of the working folder into a model
}
_SQLITE = "sqlite:///"


def tracking_uri(config: TrackingConfig) -> str:
    """The URI of the store: the configuration's, `MLFLOW_TRACKING_URI`, else SQLite in the data folder."""
    return config.uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{_SQLITE}{data_dir() / 'mlflow' / 'mlflow.db'}"


def data_dir() -> Path:
    """The folder of what nobody can make again, such as registered models: `TYPEDRAG_DATA`, else the platform's."""
    return Path(os.environ.get("TYPEDRAG_DATA") or user_data_dir("typedrag", appauthor=False))


def connect(config: TrackingConfig) -> Any:
    """Return MLflow, connected to the store and the experiment of a configuration, which are made if need be."""
    mlflow = _quiet()
    uri = tracking_uri(config)
    artifacts = None
    if uri.startswith(_SQLITE):
        file = Path(uri.removeprefix(_SQLITE)).resolve()
        artifacts = (file.parent / "artifacts").as_uri()
        _make_store(file, artifacts)
    mlflow.set_tracking_uri(uri)
    if mlflow.get_experiment_by_name(config.experiment) is None:
        try:
            mlflow.create_experiment(config.experiment, artifact_location=artifacts)
        except mlflow.MlflowException:  # another process may have been first
            if mlflow.get_experiment_by_name(config.experiment) is None:
                raise
    mlflow.set_experiment(config.experiment)
    return mlflow


def _make_store(file: Path, artifacts: str) -> None:
    """Make an empty store atomically: a store that a kill leaves half made can never be used again."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        return
    with wait_for_lock(file):
        if file.exists():  # another process was first
            return
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        for left in file.parent.glob(f".{file.name}.*{PART}*"):  # of killed processes
            left.unlink()
        part = temporary_path(file)
        store = SqlAlchemyStore(f"{_SQLITE}{part}", artifacts)
        store.engine.dispose()
        part.replace(file)


def connect_to_existing(uri: str | None, name: str) -> Any:
    """Return MLflow, connected to an existing store.

    The store is by default the one that MLflow is set to, else that of `tracking_uri`; errors call the wanted `name`.
    """
    mlflow = _quiet()
    if uri or not mlflow.is_tracking_uri_set():
        store = tracking_uri(TrackingConfig(uri=uri))
        if store.startswith(_SQLITE) and not Path(store.removeprefix(_SQLITE)).is_file():
            raise InputError(f"{name} cannot be had: MLflow keeps nothing at {store}", "Set MLFLOW_TRACKING_URI")
        mlflow.set_tracking_uri(store)
    return mlflow


def _quiet() -> Any:
    require("mlflow")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import mlflow

    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return mlflow


@contextmanager
def faults_of_store(redact: Callable[[str], str], hint: str) -> Iterator[None]:
    """Turn any error within the context, except those of typedrag, into an `Unavailable` of one line."""
    try:
        yield
    except TypedRAGError:
        raise
    except Exception as error:  # MLflow, SQLAlchemy, requests and others each raise their own
        raise Unavailable(f"MLflow's store cannot be used: {redact(first_line(error))}", hint) from error
