"""A store of MLflow's that several begin at once, where one was killed before."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from mlflow.store.tracking import sqlalchemy_store

from typedrag.experiments.config import TrackingConfig
from typedrag.experiments.tracking.tracker import _make_store, tracking_uri


def test_a_store_that_was_left_half_made_is_made_once_by_those_who_come_at_once(tmp_path, monkeypatch):
    store = tmp_path / "mlflow" / "mlflow.db"
    store.parent.mkdir()
    with sqlite3.connect(store.with_name(".mlflow.db.0123abcd.part")) as half:
        half.execute("CREATE TABLE experiments (experiment_id INTEGER)")  # MLflow could not make it again
    make, made = sqlalchemy_store.SqlAlchemyStore.__init__, []

    def watched(self, uri: str, artifacts: str) -> None:
        made.append(uri)
        make(self, uri, artifacts)
        assert not store.exists()

    monkeypatch.setattr(sqlalchemy_store.SqlAlchemyStore, "__init__", watched)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: _make_store(store, "file:///artifacts"), range(3)))
    assert len(made) == 1 and [path.name for path in store.parent.iterdir()] == ["mlflow.db"]
    with sqlite3.connect(store) as database:
        assert database.execute("SELECT name FROM experiments").fetchall() == [("Default",)]


def test_runs_and_registry_lie_where_a_cache_that_is_deleted_does_not(tmp_path, monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "TYPEDRAG_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert tracking_uri(TrackingConfig()) == f"sqlite:///{tmp_path}/share/typedrag/mlflow/mlflow.db"
    monkeypatch.setenv("TYPEDRAG_DATA", str(tmp_path))
    assert tracking_uri(TrackingConfig()) == f"sqlite:///{tmp_path}/mlflow/mlflow.db"


def test_a_kill_while_it_is_made_leaves_no_store(tmp_path, monkeypatch):
    def killed(uri: str, artifacts: str):
        with sqlite3.connect(uri.removeprefix("sqlite:///")) as half:
            half.execute("CREATE TABLE experiments (experiment_id INTEGER)")
        raise SystemExit

    store = tmp_path / "mlflow.db"
    with monkeypatch.context() as patch:
        patch.setattr(sqlalchemy_store, "SqlAlchemyStore", killed)
        with pytest.raises(SystemExit):
            _make_store(store, "file:///artifacts")
    assert not store.exists()
