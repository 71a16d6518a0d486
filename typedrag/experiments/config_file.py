"""Read settings from a YAML file; flags override the file, and `PATH=VALUE` settings override both."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from string import Template
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from typedrag.core.errors import InputError, names_hint
from typedrag.experiments.config import EvaluationConfig, named
from typedrag.files.text_files import parse_yaml
from typedrag.lms.specs import split_address

_OF_THE_NAMED = {"name": ("options", "path", "subset", "fields", "lm_calls", "tokens"), "spec": ("api_base",)}
"""By naming field: settings that belong to the named thing alone, and do not carry over to another of its kind."""

M = TypeVar("M", bound=BaseModel)


class _Written(str):
    """A text from a file; its variables are substituted only if it survives."""


class _Unaddressed(_Written):
    """The spec of an LM from a file, whose address is given above it: one that its variables bring is left out."""


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
    hint: str = "",
) -> M:
    """Read the settings of a YAML file; flags override the file, and `settings` override both.

    `${NAME}` in a text of the file is replaced by the environment variable of that name.
    """
    of_file = mark_variables(read_yaml(file)) if file else {}
    values = merge_settings(of_file, _set_flags(flags or {}))
    if isinstance(values.get("metrics"), list):
        held = of_file.get("metrics")
        known = {m["name"]: m for m in held if isinstance(m, dict) and "name" in m} if isinstance(held, list) else {}
        for place, metric in enumerate(values["metrics"]):
            own = named(metric)
            if isinstance(own, dict) and own.get("name") in known:  # with its options and weight
                values["metrics"][place] = known[own["name"]] | {n: value for n, value in own.items() if value != {}}
    return validate_settings(model, command, with_settings(values, settings), file, hint=hint)


def mark_variables(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as `read_yaml` gives them, whose variables `validate_settings` substitutes if they survive."""
    return _map_texts(_with_whole_programs(values), _Written)


def _with_whole_programs(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in which each program that is a mere name, or the place of a compiled one, is one of settings."""
    whole = dict(values)
    if isinstance(program := values.get("program"), str):
        whole["program"] = {"program": program}
    if isinstance(programs := values.get("programs"), list):
        names = (lambda p: {"program": p, "name": p}) if len(programs) > 1 else (lambda p: {"program": p})
        whole["programs"] = [names(p) if isinstance(p, str) else p for p in programs]
    return whole


def validate_settings(
    model: type[M], command: str, values: Mapping[str, Any], file: Path | None, *, hint: str = ""
) -> M:
    """Settings as their model, with the variables of texts that are from a file; see `read_into`."""

    def substitute(text: str) -> str:
        if not isinstance(text, _Written):
            return text
        try:
            whole = Template(text).substitute(os.environ)
        except KeyError as error:
            name = error.args[0]
            raise InputError(f"{file} needs the environment variable {name}", f"Set it: {name}=… typedrag …") from None
        except ValueError:
            raise InputError(f"{file}: '{text}' has a $ that names no variable", "Write $$ for a $") from None
        return split_address(whole)[0] if isinstance(text, _Unaddressed) else whole

    values = _map_texts(dict(values), substitute)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults: dict[str, str] = {}
        hints = []
        for fault in error.errors():
            name = ".".join(str(part) for part in fault["loc"]) or "programs"
            faults.setdefault(name, "is missing" if fault["type"] == "missing" else f"is refused: {fault['msg']}")
            if fault["type"] == "extra_forbidden" and (known := _fields_beside(model, fault["loc"])):
                faults[name] = "is no setting"
                hints.append(names_hint("There are", str(fault["loc"][-1]), known))
        # a list is too short for pydantic if an item of it has a fault
        own = (name for name in faults if not any(other.startswith(f"{name}.") for other in faults))
        problems = "; ".join(f"{name} {faults[name]}" for name in own)
        hint = ". ".join(dict.fromkeys(hints)) or hint or f"See: typedrag {command} --help"
        raise InputError(f"{file or 'what is wanted'}: {problems}", hint) from None


def with_settings(values: Mapping[str, Any], settings: Iterable[str], flag: str = "--set") -> dict[str, Any]:
    """Return a copy of the values with settings such as `lm.max_tokens=256` or `programs.NAME.options.top_k=3`.

    A path names an item of a list by its name or its index. Values are read as YAML, but `a=` sets an empty text.

    Example:
        >>> with_settings({}, ("top_k=5", "reason.combine=pool", "hanrag.revelator_lm="))
        {'top_k': 5, 'reason': {'combine': 'pool'}, 'hanrag': {'revelator_lm': ''}}
        >>> with_settings({"metrics": ["f1", {"name": "linkage"}]}, ["metrics.linkage.options.draws=2", "metrics.0=f2"])
        {'metrics': ['f2', {'name': 'linkage', 'options': {'draws': 2}}]}
    """
    held = dict(values)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not all(path.split(".")):
            raise InputError(f"{flag} '{setting}' sets nothing", "Write NAME=VALUE")
        try:
            value = parse_yaml(text) if text else ""
        except ValueError:
            value = text
        held = _put(held, path, value, f"{flag} '{setting}'")
    return held


def _put(holder: Any, path: str, value: Any, setting: str, of: str = "") -> Any:
    """A copy of `holder` with the value at a path; a name with dots is preferred to a path of its parts."""
    if not path:
        return merge_settings(holder, value) if isinstance(holder, Mapping) and isinstance(value, Mapping) else value
    part = path.partition(".")[0]
    if isinstance(holder, list):
        items = [named(item) for item in holder]
        names = {str(i["name"]): n for n, i in enumerate(items) if isinstance(i, Mapping) and i.get("name")}
        places = {**{str(n): n for n in range(len(holder))}, **names}
        name = _first_name(path, places)
        if name is None:
            raise InputError(f"{setting}: there is no '{part}'", names_hint("There are", part, names or places))
        rest, place = path[len(name) + 1 :], places[name]
        nested = rest or isinstance(value, Mapping)
        item = _put(named(holder[place]) if nested else holder[place], rest, value, setting, name)
        return [*holder[:place], item, *holder[place + 1 :]]
    if not isinstance(holder, Mapping | None):
        raise InputError(f"{setting}: {of} is a value already", "Set it once")
    name = _first_name(path, holder or {}) or part
    return merge_settings(
        holder or {}, {name: _put((holder or {}).get(name), path[len(name) + 1 :], value, setting, name)}
    )


def _first_name(path: str, names: Iterable[str]) -> str | None:
    return max((n for n in names if path == n or path.startswith(f"{n}.")), key=len, default=None)


def _fields_beside(model: Any, location: tuple[str | int, ...]) -> list[str]:
    """The names of the known fields beside an unknown one; empty if they cannot be found."""

    def model_in(annotation: Any) -> type[BaseModel] | None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
        return next((known for inner in get_args(annotation) if (known := model_in(inner))), None)

    for part in location[:-1]:
        if isinstance(part, str):
            model = model_in(model.model_fields[part].annotation) if part in model.model_fields else None
            if model is None:
                return []
    return list(model.model_fields)


def read_yaml(file: Path, hint: str = "Name another file", above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read the settings of a YAML file without substituting variables.

    A file that `extends` another, named relative to its own folder, is laid over the settings of that one. A mapping
    over a list changes the items that it names, as in `programs: {rag: {options: {top_k: 3}}}`; a list replaces a list.
    `above` are the files that extend this one.
    """
    try:
        values = parse_yaml(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror})", hint) from None
    except ValueError as error:
        raise InputError(f"{file} is not YAML that can be read: {error}", "Correct the file") from None
    if not isinstance(values, dict):
        raise InputError(f"{file} holds no settings", "Write NAME: VALUE lines")
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise InputError(f"{file}: extends names no file", "Write extends: FILE.yaml, relative to this file")
    other = file.parent / base
    if other.resolve() in {f.resolve() for f in (*above, file)}:
        chain = " extends ".join(map(str, (*above, file, other)))
        raise InputError(f"{chain}: these files extend one another", "Take extends out of one of them")
    return merge_settings(read_yaml(other, f"Correct the file that {file} extends", (*above, file)), values)


def merge_settings(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested settings; those above override those below. A mapping over a list is laid over its named items."""
    for naming, own in _OF_THE_NAMED.items():
        if above.get(naming) and below.get(naming) not in (None, above[naming]):
            below = {name: value for name, value in below.items() if name not in own}
    if above.get("api_base") and not above.get("spec") and isinstance(spec := below.get("spec"), str):
        bare = split_address(spec)[0]
        below = {**below, "spec": _Unaddressed(bare) if isinstance(spec, _Written) else bare}
    merged = dict(below)
    for name, value in above.items():
        held = below.get(name)
        if isinstance(value, Mapping) and isinstance(held, list):
            for item, inner in value.items():
                held = _put(held, item, inner, f"{name}.{item}")
            value = held
        elif isinstance(value, Mapping):
            value = merge_settings(held if isinstance(held, Mapping) else {}, value)
        merged[name] = value
    return merged


def _set_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: _set_flags(value) if isinstance(value, Mapping) else value for name, value in flags.items()}
    return {name: value for name, value in values.items() if value is not None and value != {}}


def _map_texts(value: Any, text: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {name: _map_texts(inner, text) for name, inner in value.items()}
    if isinstance(value, list):
        return [_map_texts(inner, text) for inner in value]
    return text(value) if isinstance(value, str) else value


def find_variables(value: Any) -> set[str]:
    """The names of the environment variables that the texts from a file in a value ask for, at any depth.

    Example:
        >>> sorted(find_variables({"lm": _Written("${LM}"), "data": [_Written("$${A} of ${FOLDER}/x"), "${flag}"]}))
        ['FOLDER', 'LM']
    """
    names: set[str] = set()

    def collect(text: str) -> str:
        if isinstance(text, _Written):
            names.update(Template(text).get_identifiers())
        return text

    _map_texts(value, collect)
    return names
