"""What is to be done, as a YAML file says it, over it flags, and over both what is set path by path."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from string import Template
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from typedrag.errors import InputError
from typedrag.experiments.evaluate.config import EvaluationConfig, named

_OF_THE_NAMED = {"name": ("options", "path", "subset", "fields", "lm_calls", "tokens"), "spec": ("api_base",)}
"""By what names a thing: settings that mean nothing to another of its kind, or were not meant for it."""

M = TypeVar("M", bound=BaseModel)


class _Written(str):
    """A text of a file, whose variables are looked up where it counts in the end."""


def read_config(
    file: Path | None, flags: Mapping[str, Any] | None = None, settings: Iterable[str] = ()
) -> EvaluationConfig:
    """The evaluation that a YAML file describes; see `read_into`."""
    return read_into(EvaluationConfig, "evaluate", file, flags, settings)


def read_into(
    model: type[M],
    command: str,
    file: Path | None,
    flags: Mapping[str, Any] | None = None,
    settings: Iterable[str] = (),
    *,
    mend: str = "",
) -> M:
    """The settings of a YAML file, over which flags have the last word, and over these what is set path by path.

    `${NAME}` in a text of the file is replaced by the environment's variable of that name.

    Args:
        model: Of the settings.
        command: That they are for, in messages.
        file: May be None where the flags say all.
        flags: Nested as the model is; what is None says nothing. A list takes the place of the
            file's, but a metric that is named without options or a weight keeps what it has there. Where
            they name another optimizer, dataset, budget or LM than the file, what the file says of
            its own (options, path, subset, limits, address) is not taken for the other.
        settings: `PATH=VALUE`, as `--set` gives them; see `with_settings`.
        mend: Where the settings are to be seen; by default in the command's help.

    Raises:
        InputError: If the file cannot be read, names an unknown setting or a variable that is not
            set, or lacks what is needed.
    """
    written = _mapped(read_yaml(file), _Written) if file else {}
    values = _laid(written, _said(flags or {}))
    if isinstance(values.get("metrics"), list):
        values["metrics"] = [_with_options(metric, written.get("metrics")) for metric in values["metrics"]]
    values = _mapped(with_settings(values, settings), lambda text: _substituted(text, file))
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "programs"
        problem = "is missing" if first["type"] == "missing" else f"is refused: {first['msg']}"
        mend = mend or f"See: typedrag {command} --help"
        if first["type"] == "extra_forbidden" and (known := _fields_beside(model, first["loc"])):
            mend = f"There are: {', '.join(known)}"
        raise InputError(f"{file or 'what is wanted'}: {name} {problem}", mend) from None


def with_settings(values: Mapping[str, Any], settings: Iterable[str], flag: str = "--set") -> dict[str, Any]:
    """The values with what is set path by path: `lm.max_tokens=256`, or `programs.NAME.options.top_k=3`.

    An item of a list is meant by its name or its index. What is set is read as YAML, but that `a=` gives an empty text.

    Args:
        values: Nested; left as they are.
        settings: In the order given.
        flag: That gave them, for messages.

    Raises:
        InputError: If one sets nothing, or leads into a value or to an item that is not there.

    Example:
        >>> with_settings({}, ("top_k=5", "reason.combine=pool", "hanrag.revelator_lm="))
        {'top_k': 5, 'reason': {'combine': 'pool'}, 'hanrag': {'revelator_lm': ''}}
        >>> with_settings({"metrics": ["f1", {"name": "linkage"}]}, ["metrics.linkage.options.draws=2", "metrics.0=f2"])
        {'metrics': ['f2', {'name': 'linkage', 'options': {'draws': 2}}]}
    """
    import yaml

    held = dict(values)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not all(path.split(".")):
            raise InputError(f"{flag} '{setting}' sets nothing", "Write NAME=VALUE")
        try:
            value = yaml.safe_load(text) if text else ""
        except yaml.YAMLError:
            value = text
        held = _put(held, path, value, f"{flag} '{setting}'")
    return held


def _put(holder: Any, path: str, value: Any, said: str, of: str = "") -> Any:
    """What holds it, with the value at a path; a name that has dots goes before a path of its parts."""
    if not path:
        return _laid(holder, value) if isinstance(holder, Mapping) and isinstance(value, Mapping) else value
    wanted = path.partition(".")[0]
    if isinstance(holder, list):
        names = {str(named(item)["name"]): n for n, item in enumerate(holder) if _has_name(item)}
        places = {**{str(n): n for n in range(len(holder))}, **names}
        name = _first_name(path, places)
        if name is None:
            raise InputError(f"{said}: there is no '{wanted}'", f"There are: {', '.join(names or places) or 'none'}")
        rest, place = path[len(name) + 1 :], places[name]
        item = _put(named(holder[place]) if rest else holder[place], rest, value, said, name)
        return [*holder[:place], item, *holder[place + 1 :]]
    if not isinstance(holder, Mapping | None):
        raise InputError(f"{said}: {of} is a value already", "Set it once")
    name = _first_name(path, holder or {}) or wanted
    return _laid(holder or {}, {name: _put((holder or {}).get(name), path[len(name) + 1 :], value, said, name)})


def _has_name(item: Any) -> bool:
    return isinstance(item, str) or (isinstance(item, Mapping) and bool(item.get("name")))


def _first_name(path: str, names: Iterable[str]) -> str | None:
    return max((n for n in names if path == n or path.startswith(f"{n}.")), key=len, default=None)


def _fields_beside(model: Any, location: tuple[str | int, ...]) -> list[str]:
    """The names of the fields where an unknown one was given; none if that cannot be told."""
    for part in location[:-1]:
        if isinstance(part, str):
            if part not in model.model_fields:
                return []
            model = _model_in(model.model_fields[part].annotation)
            if model is None:
                return []
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for inner in get_args(annotation) if (model := _model_in(inner))), None)


def read_yaml(file: Path, mend: str = "Name another --config") -> dict[str, Any]:
    """The settings that a YAML file holds, with its variables as they are written; `mend` helps if it cannot be read.

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


def _laid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """What is above, over what is below."""
    for naming, own in _OF_THE_NAMED.items():
        if above.get(naming) and below.get(naming) not in (None, above[naming]):
            below = {name: value for name, value in below.items() if name not in own}
    laid = dict(below)
    for name, value in above.items():
        held = below.get(name)
        if isinstance(value, Mapping):
            value = _laid(held if isinstance(held, Mapping) else {}, value)
        laid[name] = value
    return laid


def _said(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags without those that say nothing."""
    said = {name: _said(value) if isinstance(value, Mapping) else value for name, value in flags.items()}
    return {name: value for name, value in said.items() if value is not None and value != {}}


def _with_options(metric: Any, written: Any) -> Any:
    """A metric with what a file says of it and the flag that names it does not."""
    given = named(metric)
    if isinstance(given, dict) and not given.get("options"):
        for known in written if isinstance(written, list) else ():
            if isinstance(known, dict) and known.get("name") == given.get("name"):
                return {**known, **{k: v for k, v in given.items() if k != "options"}}
    return metric


def _mapped(value: Any, text: Callable[[str], str]) -> Any:
    """A value with each of its texts, however deep, as this makes it."""
    if isinstance(value, dict):
        return {name: _mapped(inner, text) for name, inner in value.items()}
    if isinstance(value, list):
        return [_mapped(inner, text) for inner in value]
    return text(value) if isinstance(value, str) else value


def _substituted(text: str, file: Path | None) -> str:
    if not isinstance(text, _Written):
        return text
    try:
        return Template(text).substitute(os.environ)
    except KeyError as error:
        name = error.args[0]
        raise InputError(f"{file} needs the environment variable {name}", f"Set it: {name}=… typedrag …") from None
    except ValueError:
        raise InputError(f"{file}: '{text}' has a $ that names no variable", "Write $$ for a $") from None
