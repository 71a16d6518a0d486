"""The options of commands that serve programs, over HTTP or MCP."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from typedrag.cli.options import assignments, chosen, index_option, timeout_option, together

_OF_ALL = ("lm", "index", "retriever", "reranker", "options")


def served_programs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the options of the programs to serve, passed as `sources`, and the `limits`."""

    @wraps(command)
    def wrapped(*, specs: tuple[str, ...], api_base: str | None, **arguments: Any) -> Any:
        from typedrag.serving.served import ServedSource

        alike = {name: arguments.pop(name) for name in _OF_ALL}
        sources = [ServedSource(spec, lm_settings=chosen(api_base=api_base), **alike) for spec in specs]
        return command(sources=sources, **arguments)

    return _options(wrapped)


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
    assignments("--limit", "limits", help="A limit of the server, such as deadline=60; see docs/production.md."),
)  # fmt: skip
