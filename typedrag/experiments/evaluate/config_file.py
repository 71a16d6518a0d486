"""Reading what is to be done: a YAML file, over which flags have the last word."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from typedrag.errors import InputError
from typedrag.experiments.evaluate.config import EvaluationConfig

_OF_THE_NAMED = {"name": ("options", "path", "subset", "fields", "lm_calls", "tokens"), "spec": ("api_base",)}
"""By what names a thing: settings that mean nothing to another of its kind, or were not meant for it."""

M = TypeVar("M", bound=BaseModel)


def read_config(file: Path | None, flags: Mapping[str, Any] | None = None) -> EvaluationConfig:
    """The evaluation that a YAML file describes; see `read_into`."""
    return read_into(EvaluationConfig, "evaluate", file, flags)


def read_into(
    model: type[M], command: str, file: Path | None, flags: Mapping[str, Any] | None = None, *, mend: str = ""
) -> M:
    """The settings of a YAML file, over which flags have the last word.

    `${NAME}` in a text of the file is replaced by the environment's variable of that name.

    Args:
        model: Of the settings.
        command: That they are for, in messages.
        file: May be None where the flags say all.
        flags: Nested as the model is; what is None says nothing. A list takes the place of the
            file's, but a metric that is named without options or a weight keeps what it has there. Where
            they name another optimizer, dataset, budget or LM than the file, what the file says of
            its own (options, path, subset, limits, address) is not taken for the other.
        mend: Where the settings are to be seen; by default in the command's help.

    Raises:
        InputError: If the file cannot be read, names an unknown setting or a variable that is not
            set, or lacks what is needed.
    """
    written = read_yaml(file) if file else {}
    values = _merged(written, flags or {}, file)
    if isinstance(values.get("metrics"), list):
        values["metrics"] = [_with_options(metric, written.get("metrics"), file) for metric in values["metrics"]]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "programs"
        problem = "is missing" if first["type"] == "missing" else f"is refused: {first['msg']}"
        mend = mend or f"See: typedrag {command} --help"
        raise InputError(f"{file or 'what is wanted'}: {name} {problem}", mend) from None


def read_yaml(file: Path, mend: str = "Name another --config") -> dict[str, Any]:
    """The settings that a YAML file holds, with its variables as they are written.

    Args:
        file: To be read.
        mend: What the user can do if it cannot be.

    Raises:
        InputError: If it cannot be read or holds no settings.
    """
    import yaml

    try:
        values = yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror})", mend) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not YAML: {' '.join(str(error).split())}", "Mend the file") from None
    if not isinstance(values, dict):
        raise InputError(f"{file} holds no settings", "Write NAME: VALUE lines")
    return values


def _merged(below: Mapping[str, Any], above: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    """What is above, over what is below, whose variables are looked up only where it counts."""
    for naming, own in _OF_THE_NAMED.items():
        if above.get(naming) and below.get(naming) not in (None, above[naming]):
            below = {name: value for name, value in below.items() if name not in own}
    merged = {name: _substituted(value, file) for name, value in below.items() if above.get(name) is None}
    for name, value in above.items():
        if isinstance(value, Mapping):
            held = below.get(name)
            value = _merged(held if isinstance(held, Mapping) else {}, value, file)
        if value is not None and value != {}:
            merged[name] = value
    return merged


def _with_options(metric: Any, written: Any, file: Path | None) -> Any:
    """A metric with what a file says of it and the flag that names it does not."""
    named = {"name": metric} if isinstance(metric, str) else metric
    if isinstance(named, dict) and not named.get("options"):
        for known in written if isinstance(written, list) else ():
            if isinstance(known, dict) and known.get("name") == named.get("name"):
                return {**_substituted(known, file), **{k: v for k, v in named.items() if k != "options"}}
    return metric


def _substituted(value: Any, file: Path | None) -> Any:
    if isinstance(value, dict):
        return {name: _substituted(inner, file) for name, inner in value.items()}
    if isinstance(value, list):
        return [_substituted(inner, file) for inner in value]
    if not isinstance(value, str):
        return value
    try:
        return Template(value).substitute(os.environ)
    except KeyError as error:
        name = error.args[0]
        raise InputError(f"{file} needs the environment variable {name}", f"Set it: {name}=… typedrag …") from None
    except ValueError:
        raise InputError(f"{file}: '{value}' has a $ that names no variable", "Write $$ for a $") from None
