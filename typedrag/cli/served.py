"""The options of commands that serve, over HTTP or MCP: what, where, to whom and how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from typedrag.cli.opening import say
from typedrag.cli.options import Decorator, assignments, chosen, index_option, timeout_option, together
from typedrag.core.errors import InputError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from typedrag.serving.settings import HTTPLimits

LOOPBACK = "127.0.0.1"

_OF_ALL = ("lm", "index", "retriever", "reranker", "options")


def served_programs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options of the programs to serve, passed as `sources`, and the `limits`."""

    @wraps(command)
    def wrapped(*, specs: tuple[str, ...], api_base: str | None, **arguments: Any) -> Any:
        from typedrag.serving.programs import ProgramSpec

        alike = {name: arguments.pop(name) for name in _OF_ALL}
        sources = [ProgramSpec(spec, lm_settings=chosen(api_base=api_base), **alike) for spec in specs]
        _check_names([source.name for source in sources])
        return command(sources=sources, **arguments)

    return _options(wrapped)


def _check_names(names: Sequence[str]) -> None:
    """Refuse programs that clients could not tell apart, such as two compiled ones, whose folders are `program`."""
    for name, times in Counter(names).items():
        if times > 1 or not name:
            problem = f"{times} programs are called '{name}'" if name else "a program has an empty name"
            raise InputError(problem, "Give each a name of its own: --program NAME=SPEC")


_options = together(
    click.option(
        "--program", "specs", multiple=True, default=("typed_rag",),
        help="typed_rag, a folder, models:/NAME@ALIAS or runs:/ID/PATH; NAME=… serves it by that name. Repeatable: the "
        "first is the default."),
    index_option,
    click.option("--lm",
        help="embedded[:NAME|FILE.gguf], vllm:MODEL or a DSPy name. Default: TYPEDRAG_LM, else embedded."),
    timeout_option,
    click.option("--api-base", help="Address of an OpenAI-compatible server. For vllm, default: TYPEDRAG_API_BASE."),
    click.option("--reranker", help="Reranker, instead of the program's."),
    click.option("--retriever", help="Retriever, instead of the program's."),
    assignments("-o", "--option", "options", help="Set an option of the programs; repeatable."),
    assignments("--limit", "limits", help="A limit of the server, such as deadline=60; see docs/serving.md."),
)  # fmt: skip


def listening(port: int) -> Decorator:
    """The options that say where a server listens, by which port if none is named, and who is let in."""
    return together(
        click.option(
            "--keys",
            type=click.Path(path_type=Path),
            help="The file of API keys that are let in; see typedrag keys. Its changes are followed.",
        ),
        click.option("--no-keys", is_flag=True, help="Let anyone ask who reaches the server, wherever it listens."),
        click.option("--host", default=LOOPBACK, show_default=True, help="Address to listen at."),
        click.option(
            "--port", type=click.IntRange(0, 65535), default=port, show_default=True, help="0 takes any that is free."
        ),
        click.option(
            "--replicas",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="Processes, each with the limits by itself.",
        ),
    )


def listen(
    name: str, opening: Callable[[], FastAPI], settings: HTTPLimits, *, replicas: int, host: str, port: int
) -> None:
    """Serve what is opened, by so many processes, until it is stopped."""
    from typedrag.cli.main import log_to_stderr
    from typedrag.serving.server import serve

    verbose = bool(click.get_current_context().find_root().params.get("verbose"))
    prepare = partial(log_to_stderr, verbose=verbose)
    serve(name, opening, settings, host=host, port=port, workers=replicas, report=say, prepare=prepare)
