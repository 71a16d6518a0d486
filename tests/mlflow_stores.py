"""Stores of MLflow, whose tables, which take seconds to make, are made once."""

import tempfile
from functools import cache
from pathlib import Path


def new_store(folder: Path) -> str:
    """The URI of an empty store in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mlflow.db").write_bytes(_empty())
    return f"sqlite:///{folder / 'mlflow.db'}"


@cache
def _empty() -> bytes:
    import mlflow

    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        mlflow.search_experiments()
        mlflow.set_tracking_uri(before)
        return Path(folder, "mlflow.db").read_bytes()
