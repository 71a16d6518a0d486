"""`typedrag serve`, `mcp` and `keys`: programs behind HTTP or as tools of an agent, and who is let in."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import click
from pydantic import Field, NonNegativeFloat, PositiveInt

from typedrag.cli import options
from typedrag.cli.options import chosen
from typedrag.cli.terminal import draw_table, echo, is_quiet, log_to_stderr, say
from typedrag.core.errors import InputError, did_you_mean
from typedrag.lms.specs import AdapterName
from typedrag.serving.settings import HTTPLimits, Limits, Settings, read_settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from typedrag.serving.keys import KeyFile
    from typedrag.serving.programs import ProgramSpec

OldLimits = Annotated[
    dict[str, Any], options.Hidden(), "--limit", "Former spelling of the limits: --limit queue=512 is --queue 512."
]
Host = Annotated[str, "Address to listen at; unix:FILE is a socket."]
Port = Annotated[int, Field(ge=0, le=65535), "0 takes any that is free."]
Workers = Annotated[PositiveInt, "Processes, each with the limits by itself."]


_DEFAULT = ("typed_rag",)


def _program_options() -> list[click.Option]:
    """The options of what is served; each command has its own, since they are also set by variables named after it."""
    specs = "typed_rag, a folder, models:/NAME@ALIAS or runs:/ID/PATH; NAME=… serves it by that name. Repeatable: "
    adapter_help = "How the LM is kept to the form of a reply. Default: as suits the LM."
    address = "Address of an OpenAI-compatible server. For vllm, default: TYPEDRAG_API_BASE."
    make = options.make_option
    return [
        make("served__specs", tuple[str, ...], f"{specs}the first is the default.", ["--program"], default=_DEFAULT),
        make("served__index", options.Index, get_args(options.Index)[1], ["--index"]),
        make("served__lm", str | None, options.LM_HELP.replace("[-offline]", ""), ["--lm"]),
        make("served__api_base", str | None, address, ["--api-base"]),
        make("served__reranker", str | None, "Reranker, instead of the program's.", ["--reranker"]),
        make("served__retriever", str | None, "Retriever, instead of the program's.", ["--retriever"]),
        make("served__options", dict[str, Any], "Set an option of the programs.", ["-o", "--option"]),
        make("served__top_k", PositiveInt | None, "Passages retrieved per query.", ["-k", "--top-k"]),
        make("served__temperature", NonNegativeFloat | None, "Temperature of the LM.", ["--temperature"]),
        make("served__max_tokens", PositiveInt | None, "Tokens that the LM may write in a call.", ["--max-tokens"]),
        make("served__adapter", AdapterName | None, adapter_help, ["--adapter"]),
        make("served__no_cache", bool, "Keep no replies of the LM, and answer from none.", ["--no-cache"]),
    ]


def settings_options(model: type[Limits] | type[HTTPLimits]) -> list[click.Option]:
    """The options of a server's settings and limits, and of the file that may hold all options."""
    about = "YAML file of these options by their names, such as queue: 512; options and variables override it."
    file = click.Option(
        ["--config"], help=about, type=click.Path(path_type=Path), is_eager=True, expose_value=False,
        callback=_read_defaults,
    )  # fmt: skip
    return [file, *options.field_options(model, *model.model_fields)]


def _read_defaults(context: click.Context, _: click.Parameter, file: Path | None) -> None:
    if file is None:
        return
    from typedrag.experiments.config_file import read_yaml

    known = {options.flag_name(option): option for option in context.command.params if not option.is_eager}
    defaults: dict[str, Any] = {}
    for name, value in read_yaml(file).items():
        option = known.get(name.replace("_", "-"))
        if not isinstance(option, click.Option):
            raise InputError(f"{file}: there is no option --{name}", f"{did_you_mean(name, known)}See --help-all")
        if isinstance(value, dict):
            value = [f"{key}={json.dumps(inner)}" for key, inner in value.items()]
        defaults[str(option.name)] = [value] if option.multiple and not isinstance(value, list) else value
    context.default_map = defaults


def given_settings(values: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    """The settings that are given, each as an option or by the former `--limit NAME=VALUE`."""
    if limits:
        say("--limit NAME=VALUE is now an option of that name, such as --queue 512")
    return {**limits, **{name: value for name, value in values.items() if value not in (None, ())}}


def listen(
    name: str, opening: Callable[[], FastAPI], settings: HTTPLimits, *, workers: int, host: str, port: int
) -> None:
    """Serve what is opened, by so many processes, until it is stopped."""
    from typedrag.serving.server import serve

    verbose = bool(click.get_current_context().find_root().params.get("verbose"))
    prepare = partial(log_to_stderr, verbose=verbose, quiet=is_quiet())
    serve(name, opening, settings, host=host, port=port, workers=workers, report=say, prepare=prepare)


def _program_specs(
    specs: Sequence[str], options: dict[str, Any], top_k: int | None, *, no_cache: bool | None, **how: Any
) -> list[ProgramSpec]:
    """The programs to serve; those that clients could not tell apart are refused, such as two folders `program`."""
    from typedrag.serving.programs import ProgramSpec

    alike = {name: how.pop(name) for name in ("index", "lm", "reranker", "retriever")}
    alike["lm_settings"] = chosen(**how, cache=False if no_cache else None)
    sources = [ProgramSpec(spec, options={**options, **chosen(top_k=top_k)}, **alike) for spec in specs]
    for name, times in Counter(source.name for source in sources).items():
        if times > 1 or not name:
            problem = f"{times} programs are called '{name}'" if name else "a program has an empty name"
            raise InputError(problem, "Give each a name of its own: --program NAME=SPEC")
    return sources


@options.command(
    _program_options(), settings_options(Settings), name="serve", timeout=True, old={"--replicas": "--workers"}
)
def command(
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    workers: Workers = 1,
    limits: OldLimits,
    values: dict[str, Any],
) -> None:
    """Serve programs over HTTP, until stopped.

    POST /v1/answer answers a question, with `Accept: text/event-stream` as events; GET /openapi.json
    describes all paths. Without --keys it listens on this machine only.
    """
    from typedrag.serving.server import open_app

    sources = _program_specs(**values.pop("served"))
    settings = read_settings(given_settings(values, limits), Settings)
    names = ", ".join(source.name for source in sources)
    opening = partial(open_app, tuple(sources), settings)
    listen(names, opening, settings, workers=workers, host=host, port=port)


@options.command(_program_options(), settings_options(Limits), timeout=True)
def mcp(*, limits: OldLimits, values: dict[str, Any]) -> None:
    """Answer an agent over the Model Context Protocol, until it disconnects.

    The agent starts this command itself and talks to it over stdin and stdout. For agents over HTTP, use
    `typedrag serve`, at /mcp.
    """
    from typedrag.serving.mcp import over_stdio
    from typedrag.serving.programs import Reloader
    from typedrag.serving.service import Service, run_in_background

    sources = _program_specs(**values.pop("served"))
    settings = Settings(**read_settings(given_settings(values, limits), Limits).model_dump())

    async def open_service() -> Service:
        programs = await run_in_background(lambda: [source.open() for source in sources])
        say(f"typedrag answers an agent by {', '.join(loaded.name for loaded in programs)}")
        service = Service(programs, settings)
        Reloader(service, sources).watch()
        return service

    asyncio.run(over_stdio(open_service()))


@click.group()
@click.option(
    "--keys",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path(click.get_app_dir("typedrag"), "keys.json"),
    show_default=True,
    help="The key file, with hashes of the keys.",
)
@click.pass_context
def keys(context: click.Context, path: Path) -> None:
    """Manage the API keys of `typedrag serve --keys FILE`; a running server follows the changes."""
    from typedrag.serving.keys import KeyFile

    context.obj = KeyFile(path)


@options.command(group=keys)
def add(
    ctx: click.Context,
    name: str,
    *,
    rate: Annotated[PositiveInt | None, "Requests per minute. Default: the server's --rate."] = None,
    daily_tokens: Annotated[PositiveInt | None, "LM tokens per day. Default: the server's --daily-tokens."] = None,
) -> None:
    """Make a key for NAME and print it; it cannot be shown again."""
    key = ctx.obj.add(name, rate, daily_tokens)
    say(f"This is the key of '{name}', shown this once. It is let in by: typedrag serve --keys {ctx.obj.path}")
    echo(key)


@options.command(group=keys, name="list")
def list_keys(ctx: click.Context) -> None:
    """List the names of the keys, never the keys themselves."""
    file: KeyFile = ctx.obj
    entries = file.read()
    if not entries:
        return say(f"there is no key. Make one: {file.command} add NAME")
    rows = [
        [key.name, *(str(limit or "server's") for limit in (key.rate, key.daily_tokens)), f"{key.created:%Y-%m-%d}"]
        for key in entries
    ]
    return draw_table(["name", "requests a minute", "tokens a day", "created"], rows, left=["created"])


@options.command(group=keys)
def revoke(ctx: click.Context, name: str) -> None:
    """Revoke the key of NAME; servers refuse it from the next request on."""
    ctx.obj.revoke(name)
    say(f"the key of '{name}' is revoked")
