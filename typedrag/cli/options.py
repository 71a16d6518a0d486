"""Commands, whose options are made from the fields of configs and from the parameters of functions.

The option of a config's field is named by its path: `lm__api_base` is `lm.api_base`.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem

from typedrag.cli.terminal import echo, say
from typedrag.core.call_context import use_context
from typedrag.core.errors import InputError

if TYPE_CHECKING:
    from pydantic import BaseModel

# commands by their headings: a name, its module (with `:ATTRIBUTE` if that is not `command`) and what it does
Table = Mapping[str, Mapping[str, tuple[str, str]]]

# the options by the headings of the help, so that a word stands under the same one in all commands
GROUPS: Mapping[str, str] = {
    "Program and passages": "program as-published option reranker retriever index top-k answers system type module "
    "optimizer optimizer-option budget estimate",
    "LMs": "lm api-base adapter temperature max-tokens prompt-lm prompt-api-base teacher-lm teacher-api-base scorer "
    "scorer-api-base timeout no-cache",
    "Data and metrics": "dataset path subset field split limit test-limit seed metric metric-option only file variant",
    "Results": "out resume retry-failed json trace replies register tracking tracking-uri experiment tracing",
    "Speed and limits": "threads calls-in-flight executor workers max-cost max-lm-calls max-tokens-spent max-minutes "
    "max-failures",
}
# the options that only `--help-all` shows, of commands with many
RARE = frozenset(
    "as-published type system optimizer-option adapter temperature prompt-lm prompt-api-base teacher-lm "
    "teacher-api-base scorer-api-base timeout no-cache path subset field split test-limit seed metric-option only "
    "retry-failed replies register tracking tracking-uri experiment tracing calls-in-flight executor workers "
    "max-lm-calls max-tokens-spent max-minutes max-failures origins read-seconds breaker-failures breaker-seconds "
    "registry-seconds parallel keep-alive tls-cert tls-key drain lm-calls question-tokens body-bytes batch running "
    "log-questions standalone sources-in-text hosts page retries "
    "validation-share test-share passage-words query-prompt passage-prompt approximate k1 b metadata skip-bad "
    "annotation-temperature top-p superior".split()
)
ELSEWHERE = {
    "--model": "--lm", "--base-url": "--api-base", "--docs": "--index", "--output": "--out", "--questions": "--file",
    "--data": "--dataset", "--n": "--limit",
}  # fmt: skip
"""What other tools call an option, with its name here."""
_FEW = 15
_ALL = "typedrag.help_all"
_JOINED = ("subset", "modules")  # fields that hold several names with commas between


class Metavar(str):
    """The name of an option's value in the help."""

    __slots__ = ()


class Joined:
    """Marks a repeatable option whose values are joined by commas: of others only the last would be used."""


class Hidden:
    """Marks an option that the help leaves out."""


ConfigFile = Annotated[Path | None, "YAML file, see configs/; other options override it.", "--config"]
Settings = Annotated[
    tuple[str, ...], Metavar("PATH=VALUE"), "--set",
    "Any setting of the config, by its path, such as lm.max_tokens=256 or programs.NAME.options.top_k=3.",
]  # fmt: skip
Json = Annotated[bool, "Print JSON, an object a line.", "--json"]
Index = Annotated[Path | None, "Index folder. Default: TYPEDRAG_INDEX, else a sample corpus."]
FieldMapping = Annotated[
    dict[str, str], "--field", "Column of a field in a file of your own, such as answers=gold; repeatable."
]
MetricOptions = Annotated[dict[str, Any], Metavar("METRIC.NAME=VALUE"), "--metric-option", "Option of a metric."]
LM_HELP = "embedded[:NAME|FILE.gguf], vllm[-offline]:MODEL or a DSPy name. Default: TYPEDRAG_LM, else embedded."
CAPS = ("tokens --max-tokens-spent", "lm_calls --max-lm-calls", "cost --max-cost", "minutes --max-minutes")


class FlagOrChoice(click.Choice[str]):
    """One of some values, of which the first is also meant by the option alone, and by `true` in the environment."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            value = self.choices[0] if click.BOOL.convert(value, None, None) else None
        except click.BadParameter:
            value = super().convert(value, param, ctx)
        return value


class Command(click.Command):
    """A command whose help shows its options in groups, and rarely used ones only by `--help-all`; `old` are former
    names of options, with the present ones."""

    def __init__(self, *args: Any, old: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.old = dict(old or {})
        shown = [p for p in self.params if isinstance(p, click.Option) and not p.hidden]
        self.rare = [p for p in shown if flag_name(p) in RARE] if len(shown) > _FEW else []
        if self.rare:
            more: dict[str, Any] = {"callback": _show_all, "help": f"Show {len(self.rare)} more options."}
            self.params.append(click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, **more))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        alone = {n: p.type.choices[0] for p in self.params if isinstance(p.type, FlagOrChoice) for n in p.opts}
        for place, word in enumerate(args):
            if word in alone:  # click would take the next word, such as a question, for its value
                args[place] = f"{word}={alone[word]}"
            name, equals, value = word.partition("=")
            if name in self.old:
                say(f"{name} is now {self.old[name]}")
                args[place] = f"{self.old[name]}{equals}{value}"
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ours = ELSEWHERE.get(error.option_name)
            if not any(ours in parameter.opts for parameter in self.params):
                raise
            words = f"No such option '{error.option_name}'. Did you mean '{ours}'?"
            raise click.NoSuchOption(error.option_name, words, ctx=ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in ("Options", *GROUPS, "Help")}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record and (ctx.meta.get(_ALL) or parameter not in self.rare):
                name = flag_name(parameter)
                headings = (heading for heading, names in GROUPS.items() if name in names.split())
                sections["Help" if name.startswith("help") else next(headings, "Options")].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _show_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        echo(ctx.get_help())
        ctx.exit()


class Commands(click.Group):
    """A group of a table, which imports a command on use; `moved` are commands that are now in a group of the table,
    and still known here."""

    def __init__(self, *args: Any, table: Table, moved: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.table, self.moved = table, moved or {}
        self.places = {name: place for section in table.values() for name, (place, _) in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if group := self.moved.get(cmd_name):
            inner = self.get_command(ctx, group)
            return inner.get_command(ctx, cmd_name) if isinstance(inner, click.Group) else None
        if cmd_name not in self.places:
            return None
        module, _, attribute = self.places[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"typedrag.cli.{module}"), attribute or "command")
        if not isinstance(command, Commands):
            read_environment(command, f"TYPEDRAG_{variable(cmd_name)}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in self.moved:
            say(f"typedrag {args[0]} is now typedrag {self.moved[args[0]]} {args[0]}")
        elif args and args[0] not in self.places and not args[0].startswith("-"):
            raise click.NoSuchCommand(args[0], possibilities=[*self.places, *self.moved], ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in self.table.items():
            with formatter.section(heading):
                formatter.write_dl([(name, about) for name, (_, about) in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        abouts = {name: about for section in self.table.values() for name, (_, about) in section.items()}
        names = [CompletionItem(name, help=about) for name, about in abouts.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)


def variable(name: str) -> str:
    """A name of the command line in the spelling of environment variables.

    Example:
        >>> variable("--top-k")
        'TOP_K'
    """
    return name.lstrip("-").replace("-", "_").upper()


def flag_name(parameter: click.Parameter) -> str:
    return next((name.removeprefix("--") for name in parameter.opts if name.startswith("--")), "")


def read_environment(command: click.Command, prefix: str) -> None:
    """Let all options of a command, or of a group's commands, be set by environment variables `PREFIX_OPTION` too."""
    options = [p for p in command.params if isinstance(p, click.Option) and not p.is_eager]
    for option in options:
        former = [old for old, new in getattr(command, "old", {}).items() if new in option.opts]
        names = [f"{prefix}_{variable(name)}" for name in (flag_name(option), *former)]
        option.envvar = names if former else names[0]
        option.show_envvar = any(name in os.environ for name in names)
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            read_environment(inner, f"{prefix}_{variable(name)}")
    elif options:
        example = next((o for o in options if not o.hidden), options[0])
        named = f"{prefix}_{variable(flag_name(example))}"
        command.epilog = f"An option may come from the environment: --{flag_name(example)} from {named}."


def command(
    *fields: Sequence[click.Option],
    group: click.Group | None = None,
    name: str | None = None,
    timeout: bool = False,
    old: Mapping[str, str] | None = None,
    without: Collection[str] = (),
) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function, whose docstring is the help.

    Its positional parameters become arguments, the others options: `top_k: Annotated[PositiveInt, "Passages.", "-k"]`
    is `-k, --top-k`. It gets the options of configs as nested `values`, and click's context as `ctx`.

    Args:
        fields: Options of configs, see `field_options`.
        group: The group that it is added to.
        name: Its name in the group, if that is not the function's.
        timeout: Whether there is `--timeout` of LM calls.
        old: Former names of options, and the present ones.
        without: Parameters that do not become options.
    """

    def make(function: Callable[..., None]) -> Command:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
        others = [option for options in fields for option in options]
        of_configs = [option for option in others if option.expose_value]
        left_out = {"ctx", "values", *without}
        own = [_make_parameter(p, hints[p.name]) for p in parameters.values() if p.name not in left_out]
        waiting = [make_option("timeout", Annotated[float, click.FloatRange(0, min_open=True)], _TIMEOUT)]

        def call(**flags: Any) -> None:
            context = click.get_current_context()
            if seconds := flags.pop("timeout", None):
                context.with_resource(use_context(timeout=seconds))
            values = {option.name: flags.pop(option.name) for option in of_configs}
            extra = {"ctx": context, "values": nested(values)}
            function(**flags, **{name: value for name, value in extra.items() if name in parameters})

        params = [*own, *others, *(waiting if timeout else ())]
        new = Command(
            name or function.__name__.replace("_", "-"), callback=call, params=params, old=old,
            help=inspect.getdoc(function),
        )  # fmt: skip
        if group:
            group.add_command(new)
        return new

    return make


_TIMEOUT = "Time limit of an LM's reply in seconds; it is asked once more, then given up. Default: 120; 300 for LMs "
_TIMEOUT += "that reason first, 600 for embedded ones."


def _make_parameter(parameter: inspect.Parameter, annotation: Any) -> click.Parameter:
    required, default = parameter.default is parameter.empty, parameter.default
    if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
        kind, metadata, repeated = _unwrap(annotation)
        return click.Argument(
            [parameter.name], type=_click_type(kind, metadata), nargs=-1 if repeated else 1, required=required,
            metavar=next((text for text in metadata if isinstance(text, Metavar)), None),
        )  # fmt: skip
    texts = [text for text in _unwrap(annotation)[1] if isinstance(text, str) and not isinstance(text, Metavar)]
    about = next((text for text in texts if not text.startswith("-")), "")
    flags = [text for text in texts if text.startswith("-")]
    return make_option(
        parameter.name, annotation, about, flags, default=None if required else default, required=required
    )


def field_options(
    model: type[BaseModel], *specs: str | tuple[str, str], under: str = "", whole: bool = False
) -> list[click.Option]:
    """Options of a config's fields, none of which has a default: without them, a file or the config decides.

    Args:
        model: The config.
        specs: Paths of fields, as `lm.api_base`, each perhaps with other flags than `--api-base` behind it, and in a
            pair with another help than the field's description.
        under: The path of the config itself in the command's `values`.
        whole: Whether the help is the whole description; by default its first sentence.
    """
    options = []
    for spec in specs:
        spec, about = (spec, "") if isinstance(spec, str) else spec
        path, *flags = spec.split()
        *outer, last = path.split(".")
        holder, role = model, ""
        for part in outer:
            role = holder.model_fields[part].description or ""
            holder = _model_in(holder.model_fields[part].annotation)
        field = holder.model_fields[last]
        if not about:
            about = (role if last == "spec" else "") or field.description or ""
            about = " ".join(about.replace("`", "").split())
            about = about if whole else re.split(r"(?<=\.)\s+(?=[A-Z])", about)[0]
        name = "__".join([*([under] if under else []), *path.split(".")])
        marks = [*field.metadata, *([Joined()] if last in _JOINED else [])]
        shown = None if field.is_required() else field.get_default()
        required = whole and field.is_required()
        flags = flags or ["--" + last.replace("_", "-")]
        options.append(make_option(name, field.annotation, about, flags, marks=marks, shown=shown, required=required))
    return options


def _model_in(annotation: Any) -> Any:
    if hasattr(annotation, "model_fields"):
        return annotation
    return next((model for inner in get_args(annotation) if (model := _model_in(inner))), None)


def make_option(
    name: str,
    annotation: Any,
    about: str,
    flags: Sequence[str] = (),
    *,
    marks: Sequence[Any] = (),
    default: Any = None,
    shown: Any = None,
    required: bool = False,
) -> click.Option:
    """An option of a type with further metadata; `shown` is a default that the help tells and others apply."""
    kind, metadata, repeated = _unwrap(annotation)
    metadata += [inner for each in marks for inner in getattr(each, "metadata", [each])]
    flags = [*flags, *([] if any(flag.startswith("--") for flag in flags) else ["--" + name.replace("_", "-")])]
    metavar = next((text for text in metadata if isinstance(text, Metavar)), None)
    settings: dict[str, Any] = {"required": required, "metavar": metavar}
    settings["hidden"] = any(isinstance(each, Hidden) for each in metadata)
    known = default if default is not None else shown
    if get_origin(kind) in (dict, Mapping):
        inner = get_args(kind)[1]
        form = {Any: "NAME=VALUE", str: "NAME=COLUMN"}.get(inner, "NAME=VALUE,…")
        settings |= {"required": False, "multiple": True, "metavar": metavar or form}
        settings["callback"] = partial(_read_pairs, inner)
    elif any(isinstance(each, Joined) for each in metadata):
        settings |= {"multiple": True, "callback": lambda _, __, values: ",".join(values) if values else None}
        about += " Several: with commas, or repeated."
    elif kind is bool:
        if known is True and "/" not in flags[-1]:
            flags = [*flags[:-1], f"{flags[-1]}/--no-{flags[-1][2:]}"]
        settings |= {"is_flag": True, "default": default}
        about += " Default: yes." if known is True and "default" not in about.lower() else ""
    else:
        settings |= {"type": _click_type(kind, metadata), "multiple": repeated}
        if any(bool in get_args(getattr(each, "json_schema_input_type", None)) for each in metadata):
            settings |= {"type": FlagOrChoice(get_args(kind)), "is_flag": False, "flag_value": get_args(kind)[0]}
        if default not in (None, ()):
            settings["default"] = default
        if not (known in (None, "", ()) or repeated or "default" in about.lower() or isinstance(known, dict)):
            text = known.value if isinstance(known, Enum) else known
            text = f"{text:,}" if isinstance(text, int) else f"{text:.3g}" if isinstance(text, float) else text
            about = f"{about.rstrip('.')}; default: {text}."
    if settings.get("multiple") and "epeat" not in about:
        about += " Repeatable."
    return click.Option([*flags, name], help=about, **settings)


def _unwrap(annotation: Any) -> tuple[Any, list[Any], bool]:
    """The type of an annotation's values without None, its metadata, and whether there may be several values."""
    metadata: list[Any] = []
    repeated = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *more = get_args(annotation)
            metadata += [inner for each in more for inner in getattr(each, "metadata", [each])]
        elif origin in (Union, UnionType):
            annotation = next(kind for kind in get_args(annotation) if kind is not type(None))
        elif origin is tuple:
            annotation, repeated = get_args(annotation)[0], True
        else:
            return annotation, metadata, repeated


def _click_type(kind: Any, metadata: Sequence[Any]) -> Any:
    if types := [each for each in metadata if isinstance(each, click.ParamType)]:
        return types[0]
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind), case_sensitive=False)
    if issubclass(kind, Path):
        form = next((each.path_type for each in metadata if hasattr(each, "path_type")), "")
        return click.Path(
            path_type=Path, exists=form in ("file", "dir"), dir_okay=form != "file", file_okay=form != "dir"
        )
    if issubclass(kind, Enum):
        return click.Choice([member.value for member in kind], case_sensitive=False)
    bounds = {n: getattr(each, n) for each in metadata for n in ("ge", "gt", "le", "lt") if hasattr(each, n)}
    if not bounds:
        return kind
    if kind is int:
        return click.IntRange(bounds["gt"] + 1 if "gt" in bounds else bounds.get("ge"), bounds.get("le"))
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    return click.FloatRange(low, high, min_open="gt" in bounds, max_open="lt" in bounds)


def _read_pairs(kind: Any, _: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """`NAME=VALUE` as nested values read as YAML if of any kind, `NAME=COLUMN` of texts, else `NAME=VALUE,VALUE`."""
    if not values:
        return {}
    if kind is Any:
        from typedrag.experiments.config_file import with_settings

        return with_settings({}, values, max(option.opts, key=len))
    if kind is str:
        from typedrag.datasets import field_mapping

        return dict(field_mapping(values))
    chosen = {}
    for choice in values:
        name, equals, categories = choice.partition("=")
        if not equals:
            raise InputError(f"'{choice}' chooses nothing", "Write it like turn=first-turn")
        chosen[name] = tuple(category.strip() for category in categories.split(","))
    return chosen


def nested(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags as nested values of a config.

    Example:
        >>> nested({"threads": 4, "lm__spec": "embedded", "lm__max_tokens": None})
        {'threads': 4, 'lm': {'spec': 'embedded', 'max_tokens': None}}
    """
    values: dict[str, Any] = {}
    for name, value in flags.items():
        group, _, inner = name.rpartition("__")
        (values.setdefault(group, {}) if group else values)[inner] = value
    return values


def chosen(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def named_metrics(options: Mapping[str, Any], named: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The metrics of `--metric` with their options of `--metric-option`; None if there are none."""
    if unknown := options.keys() - {metric["name"] for metric in named}:
        raise InputError(
            f"--metric-option is given for {', '.join(sorted(unknown))}", "Name the metric: --metric NAME,…"
        )
    return [{**metric, "options": options.get(metric["name"], {})} for metric in named] or None
