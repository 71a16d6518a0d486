"""Compiled programs as models of MLflow, and as versions of a registered model."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from typedrag.errors import InputError
from typedrag.programs.artifact.compiled import PROGRAM, CompiledAbout
from typedrag.programs.artifact.json_folder import read_part, write_parts
from typedrag.redaction import cleaned

MODEL = "model"
"""The name of a run's model: `runs:/ID/model`."""
REGISTERED = {"typedrag": "compiled program"}
"""The tag by which registered versions are found."""
_DIGEST, _MODEL_ID = "typedrag.program", "typedrag.model"
"""Tags of runs; registered versions have the second one, too."""


def check_model_name(name: str) -> None:
    """Raise an `InputError` for a name that no registered model should have."""
    if not re.fullmatch(r"[\w+-][\w +.-]*", name):
        raise InputError(f"no registered model can be called '{name}'", "Use letters, digits, and - _ + . within")


def copy_redacted(folder: Path, copy: Path, redact: Callable[[str], str]) -> dict[str, Any]:
    """Copy the JSON files of a compiled program or judge, redacted; return their values by the files' names."""
    names = [file.name for file in folder.glob("*.json")]
    parts: dict[str, Any] = {name: cleaned(read_part(folder, name, str(folder)), redact) for name in names}
    write_parts(copy, parts)
    return parts


def log_model(client: Any, run_id: str, program: Path, content: Mapping[str, Any]) -> str:
    """Log the compiled program in a folder as a model of a run, unless the run has it already; return the model's id.

    `content` holds the values of the folder's files, by name.
    """
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    from typedrag.experiments.tracking.served_model import save_served_program

    run, digest = client.get_run(run_id), _digest(content)
    if run.data.tags.get(_DIGEST) == digest:
        return str(run.data.tags[_MODEL_ID])
    model = client.create_logged_model(run.info.experiment_id, name=MODEL, source_run_id=run_id)
    model_id = str(model.model_id)
    with tempfile.TemporaryDirectory() as folder:
        # MLflow's own log_model would let an LM answer the example
        described = Model(model.artifact_location, run_id, model_uuid=model_id, model_id=model_id)
        save_served_program(program, Path(folder, MODEL), described)
        client.log_model_artifacts(model_id, str(Path(folder, MODEL)))
    client.finalize_logged_model(model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])
    client.set_tag(run_id, _MODEL_ID, model_id)
    client.set_tag(run_id, _DIGEST, digest)
    return model_id


def register_model(client: Any, run_id: str, model_id: str, name: str, about: CompiledAbout) -> str:
    """Register a model as a version of a registered model, unless it is one already; return `models:/NAME/VERSION`."""
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS"):
            raise
    for held in mlflow.search_model_versions(filter_string=f"name = '{name}'"):
        if held.tags.get(_MODEL_ID) == model_id:  # searches do not return the model's own id
            return f"models:/{name}/{held.version}"
    version = client.create_model_version(
        name,
        f"models:/{model_id}",
        run_id=run_id,
        tags={**REGISTERED, _MODEL_ID: model_id},
        description=f"compiled by {about.optimizer} against {about.metric} on {about.dataset}",
        model_id=model_id,
    )
    return f"models:/{name}/{version.version}"


def _digest(content: Mapping[str, Any]) -> str:
    """The digest of all but the date: a compile that is resumed after its end writes the same program again."""
    header = content[PROGRAM]
    header = {**header, "about": {n: v for n, v in header["about"].items() if n != "created"}}
    return hashlib.sha256(json.dumps({**content, PROGRAM: header}, sort_keys=True).encode()).hexdigest()[:16]
