"""The settings of config files, and those that each file in `configs/` sets."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from pydantic import BaseModel

from typedrag.experiments.config import EvaluationConfig
from typedrag.experiments.config_file import read_into, read_yaml
from typedrag.optimizers.compile import CompileConfig
from typedrag.optimizers.compile.prompt_optimizers import optimizer_class, optimizer_names
from typedrag.optimizers.list_ranker.config import RankerTrainConfig
from typedrag.optimizers.revelator_settings import TrainingSettings
from typedrag.optimizers.sweep import SweepConfig
from typedrag.optimizers.sweep.space import sweep_schema
from typedrag.papers.config import PaperTable, RankersConfig, TableConfig
from typedrag.programs import Options
from typedrag.serving.settings import IndexSettings, Limits, Settings

Schema = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "configs"
MODELS: dict[str, type[BaseModel]] = {
    "evaluate": EvaluationConfig,
    "compile": CompileConfig,
    "sweep": SweepConfig,
    "ranker train": RankerTrainConfig,
    "revelator train": TrainingSettings,
    "papers run": TableConfig,
    "papers run, rankers": RankersConfig,
    "serve": Settings,
    "index serve": IndexSettings,
    "mcp": Limits,
    "options of programs": Options,
    **{f"options of optimizer {name}": optimizer_class(name) for name in optimizer_names()},
}
KINDS = {"knobs": "sweep", "optimizer": "compile", "programs": "evaluate", "training": "ranker train"}
"""The command of a file, by a key that only its files have."""
PARTS = {"base", "optimizers"}
"""Files that others extend, or that a script reads."""


FLAGS: dict[str, dict[str, Any]] = {"ranker train": {"data": "pools.jsonl"}}
"""By command: what a file leaves to flags."""


def config_settings() -> dict[str, Any]:
    """By command and dotted name: the JSON schema of a setting; `*` is any item of a list, `NAME` any key."""
    schemas = {command: model.model_json_schema() for command, model in MODELS.items()}
    settings = {command: dict(_settings(schema, schema.get("$defs", {}))) for command, schema in schemas.items()}
    knobs = sweep_schema()["properties"]["knobs"]["properties"]
    return {**settings, "sweep, knobs": {name: knob["description"] for name, knob in knobs.items()}}


def config_files() -> dict[str, Any]:
    """By file: the command that reads it, and the names that it sets; a name within a list is the same for all items.

    Raises:
        InputError: If a file does not describe what its command does.
    """
    return {file.relative_to(FOLDER).as_posix(): _about(file) for file in sorted(FOLDER.rglob("*.yaml"))}


def _about(file: Path) -> dict[str, Any]:
    values = yaml.safe_load(file.read_text("utf-8"))
    variables = re.findall(r"\$\{(\w+)\}", str(read_yaml(file)))
    with patch.dict(os.environ, dict.fromkeys(variables, "somewhere")):
        return {"command": _read(file), "sets": sorted(set(_names(values)))}


def _read(file: Path) -> str | None:
    if file.stem in PARTS:
        return None
    if file.parent.parent.name == "papers":
        return f"papers run, {PaperTable(file.stem, file).config.kind}"
    command = next(command for key, command in KINDS.items() if key in read_yaml(file))
    read_into(MODELS[command], command, file, FLAGS.get(command))
    return command


def _names(values: Any, path: str = "") -> Iterator[str]:
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from _names(value, f"{path}.{name}" if path else str(name))
    elif isinstance(values, list) and any(isinstance(value, dict | list) for value in values):
        for value in values:
            yield from _names(value, f"{path}.*")
    else:
        yield path


def _settings(model: Schema, definitions: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    for name, schema in model.get("properties", {}).items():
        setting = f"{path}.{name}" if path else name
        required = {"required": True} if name in model.get("required", ()) else {}
        yield setting, {**_plain(schema, definitions), **required}
        for suffix, inner in _inner(schema, definitions):
            yield from _settings(inner, definitions, setting + suffix)


def _inner(schema: Schema, definitions: Schema) -> Iterator[tuple[str, Schema]]:
    """The models that a setting may hold, each with what a name within it has before it."""
    if "$ref" in schema:
        yield "", _definition(schema, definitions)
    for choice in schema.get("anyOf", schema.get("oneOf", ())):
        yield from _inner(choice, definitions)
    for key, suffix in (("items", ".*"), ("additionalProperties", ".NAME")):
        if isinstance(inner := schema.get(key), dict):
            yield from ((suffix + more, model) for more, model in _inner(inner, definitions))


def _plain(schema: Any, definitions: Schema) -> Any:
    """A schema without titles and descriptions; a model within it is an object."""
    if isinstance(schema, list):
        return [_plain(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        inner = _definition(schema, definitions)
        kind = {"type": "object"} if "properties" in inner else _plain(inner, definitions)
        return {**kind, **{n: v for n, v in schema.items() if n not in ("$ref", "description")}}
    return {n: _plain(v, definitions) for n, v in schema.items() if n not in ("title", "description")}


def _definition(schema: Schema, definitions: Schema) -> Schema:
    found: Schema = definitions[schema["$ref"].rpartition("/")[2]]
    return found
