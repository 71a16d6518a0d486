"""The page of all keys of config files, out of their models."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from site_parts import package, table

from typedrag.datasets import sources
from typedrag.experiments.config import EvaluationConfig
from typedrag.metrics import metric_class, metric_names
from typedrag.optimizers.compile import CompileConfig
from typedrag.optimizers.compile.prompt_optimizers import optimizer_class, optimizer_names
from typedrag.optimizers.list_ranker.config import RankerTrainConfig
from typedrag.optimizers.revelator_settings import TrainingSettings
from typedrag.optimizers.sweep import SweepConfig
from typedrag.papers.config import RankersConfig, TableConfig
from typedrag.programs import Options, program_class, program_names
from typedrag.serving.settings import IndexSettings, Limits, Settings

CONFIGS: Mapping[str, tuple[type[BaseModel], str]] = {
    "typedrag evaluate": (EvaluationConfig, "The file of `--config`."),
    "typedrag compile": (CompileConfig, "The file of `--config`."),
    "typedrag sweep": (SweepConfig, "The file that is swept."),
    "typedrag research ranker train": (RankerTrainConfig, "The file of `--config`."),
    "typedrag research revelator train": (TrainingSettings, "What `--set` takes."),
    "typedrag research papers run": (TableConfig, "The file of a table."),
    "typedrag research papers run, rankers": (RankersConfig, "Its `rankers`."),
    "typedrag serve": (Settings, "Its options."),
    "typedrag index serve": (IndexSettings, "Its options."),
    "typedrag mcp": (Limits, "Its options."),
    "Options of programs": (Options, "What `-o` takes, and `programs.NAME.options` of a file."),
}
_NO_OPTIONS = {"scorer", "path", "subset", "fields"}
"""Parameters of metrics and loaders that a config has keys of its own for."""


def config_page() -> str:
    """The page."""
    parts = ["# Config keys", "In `--set`, a dot stands between a key and one within it: `lm.max_tokens=256`."]
    for title, (model, about) in CONFIGS.items():
        parts += [f"## {title}", f"{about} {_about(model)}", _keys(model)]
    options = {name: sorted(program_class(name).reads) for name in program_names()}
    rows = [(f"`{name}`", ", ".join(f"`{option}`" for option in reads)) for name, reads in options.items()]
    parts += ["## Which program reads which option", table(("program", "options"), rows), "## Parts of configs"]
    for model in dict.fromkeys(inner for root, _ in CONFIGS.values() for inner in parts_of(root)):
        parts += [f"### {model.__name__}", _about(model), _keys(model)]
    parts += ["## Options of optimizers", "`optimizer.options` of a compile, or `--optimizer-option`."]
    for optimizer in map(optimizer_class, optimizer_names()):
        parts += [f"### {optimizer.name}", optimizer.about, _keys(optimizer)]
    parts += ["## Options of metrics", "`metrics.NAME.options`, or `--metric-option NAME.OPTION=VALUE`."]
    parts += [_parameters({name: metric_class(name) for name in metric_names()})]
    parts += ["## Options of datasets", "`dataset.options`.", _parameters({s.name: s.load for s in sources()})]
    return "\n\n".join([*parts, ""])


def parts_of(model: type[BaseModel]) -> dict[type[BaseModel], None]:
    """The models that a model's fields hold, and theirs, in order."""
    parts: dict[type[BaseModel], None] = {}
    waiting = [model]
    while waiting:
        inner = [m for field in waiting.pop(0).model_fields.values() for m in _models(field.annotation)]
        waiting += [m for m in inner if m not in parts]
        parts |= dict.fromkeys(inner)
    return parts


def form(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """A JSON schema in a few words, with links to the parts of configs.

    Example:
        >>> form({"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}]}, {})
        'integer > 0, or null'
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return form(definitions[name], {}) if "enum" in definitions[name] else f"[{name}](#{name.lower()})"
    if kinds := schema.get("anyOf") or schema.get("oneOf"):
        return ", or ".join(form(kind, definitions) for kind in kinds)
    if values := schema.get("enum") or ("const" in schema and [schema["const"]]):
        return ", ".join(f"`{value}`" for value in values)
    if schema.get("type") == "array":
        return f"list of {form(schema.get('items') or {}, definitions)}"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = " and ".join(f"{sign} {schema[name]:g}" for name, sign in signs.items() if name in schema)
    kind = schema.get("type", "any")
    return f"{({'object': 'mapping', 'string': 'text'}).get(kind, kind)} {bounds}".rstrip()


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _about(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0]


def _keys(model: type[BaseModel]) -> str:
    schema = model.model_json_schema()
    rows = []
    for name, field in model.model_fields.items():
        key = schema["properties"][name]
        default = "required" if field.is_required() else _default(key.get("default"))
        rows.append((f"`{name}`", form(key, schema.get("$defs", {})), default, _meaning(model, name)))
    return table(("key", "value", "default", "meaning"), rows)


def _default(value: Any) -> str:
    return "" if value in (None, "", [], ()) or isinstance(value, dict) else f"`{getattr(value, 'value', value)}`"


def _meaning(model: type[BaseModel], name: str) -> str:
    """The docstring below a field, in the class that declares it."""
    for cls in model.__mro__:
        if cls.__module__.startswith("typedrag.") and name in vars(cls).get("__annotations__", {}):
            docstring = package()[f"{cls.__module__}.{cls.__qualname__}.{name}".removeprefix("typedrag.")].docstring
            return docstring.value if docstring else ""
    return ""


def _parameters(makers: Mapping[str, Callable[..., object]]) -> str:
    rows = [
        (f"`{name}`", f"`{option}`", _default(parameter.default))
        for name, maker in makers.items()
        for option, parameter in inspect.signature(maker).parameters.items()
        if option not in _NO_OPTIONS
    ]
    return table(("name", "option", "default"), rows)
