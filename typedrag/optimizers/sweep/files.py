"""Read and keep the YAML file of a sweep; its folder holds the file that it was begun with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from typedrag.core.errors import InputError
from typedrag.experiments.config_file import read_into, read_yaml
from typedrag.files.text_files import write_text
from typedrag.optimizers.sweep.config import SweepConfig
from typedrag.optimizers.sweep.space import all_knobs

FILE = "sweep.yaml"


def read_sweep(file: Path, flags: Mapping[str, Any] | None = None, settings: Iterable[str] = ()) -> SweepConfig:
    """The sweep that a YAML file describes; see `read_into`."""
    return read_into(SweepConfig, "sweep", file, flags, settings, hint="See: typedrag sweep --schema")


def keep_file(file: Path, folder: Path) -> None:
    """Copy a sweep's file to its folder, without substituting variables: their values may be secret.

    A file that extends another, named relative to its own folder, is kept as both together.
    """
    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    if file.resolve() == (folder / FILE).resolve():
        return
    text = file.read_text("utf-8")
    if "extends" in yaml.safe_load(text):
        text = yaml.safe_dump(read_yaml(file), sort_keys=False, allow_unicode=True)
    write_text(folder / FILE, text)


def read_kept(folder: Path, flags: Mapping[str, Any] | None = None, settings: Iterable[str] = ()) -> SweepConfig:
    """The sweep in a folder that `typedrag sweep` has written."""
    if not (folder / FILE).is_file():
        raise InputError(f"{folder} holds no sweep", "Name the --out of a typedrag sweep")
    return read_sweep(folder / FILE, flags, settings)


def sweep_schema() -> dict[str, Any]:
    """The JSON schema of sweep files, with each setting's description and every knob with its range."""
    schema = SweepConfig.model_json_schema()
    knobs = schema["properties"]["knobs"]
    form = knobs.pop("additionalProperties")
    knobs["additionalProperties"] = False
    knobs["properties"] = {
        name: {"description": f"By default {knob}.", "anyOf": [form, {"type": "array"}, {"type": "null"}]}
        for name, knob in all_knobs().items()
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "A sweep of typedrag"}
