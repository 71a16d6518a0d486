"""Read and keep the YAML file of a sweep; its folder holds the file that it was begun with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from typedrag.errors import InputError
from typedrag.experiments.evaluate.config_file import read_into, read_yaml, with_settings
from typedrag.files.text_files import write_text
from typedrag.optimizers.sweep.config import SweepConfig, WeightsConfig
from typedrag.optimizers.sweep.space import all_knobs

FILE = "sweep.yaml"
_SETTINGS = "See: typedrag sweep --schema"


def read_sweep(
    file: Path, flags: Mapping[str, Any] | None = None, settings: Iterable[str] = ()
) -> SweepConfig | WeightsConfig:
    """The sweep that a YAML file describes; see `read_into`.

    Raises:
        InputError: If the file cannot be read, or does not describe a sweep.
    """
    settings = tuple(settings)
    kind = with_settings(read_yaml(file, "Name another FILE"), settings).get("kind", "program")
    if kind == "weights":
        return read_into(WeightsConfig, "sweep", file, flags, settings, mend=_SETTINGS)
    if kind != "program":
        raise InputError(f"{file}: kind is '{kind}'", "Write program or weights")
    return read_into(SweepConfig, "sweep", file, flags, settings, mend=_SETTINGS)


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
    """The sweep in a folder that `typedrag sweep` has written.

    Raises:
        InputError: If the folder holds none, or one over weights.
    """
    if not (folder / FILE).is_file():
        raise InputError(f"{folder} holds no sweep", "Name the --out of a typedrag sweep")
    config = read_sweep(folder / FILE, flags, settings)
    if not isinstance(config, SweepConfig):
        raise InputError(f"{folder} holds a sweep over weights", f"See {folder / 'weights.json'}")
    return config


def sweep_schema() -> dict[str, Any]:
    """The JSON schema of sweep files, with each setting's description and every knob with its range."""
    program, weights = SweepConfig.model_json_schema(), WeightsConfig.model_json_schema()
    knobs = program["properties"]["knobs"]
    form = knobs.pop("additionalProperties")
    knobs["additionalProperties"] = False
    knobs["properties"] = {
        name: {"description": f"By default {knob}.", "anyOf": [form, {"type": "array"}, {"type": "null"}]}
        for name, knob in all_knobs().items()
    }
    definitions = {**program.pop("$defs", {}), **weights.pop("$defs", {})}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A sweep of typedrag",
        "oneOf": [program, weights],
        "$defs": definitions,
    }
