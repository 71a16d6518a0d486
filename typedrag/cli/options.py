"""Options that commands share, named as in a config where they are of one: `lm__api_base` is its `lm.api_base`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from typedrag.errors import InputError
from typedrag.lms.patience import timeout_given

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order of the help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def assignments(*names: str, metavar: str = "NAME=VALUE", **settings: Any) -> Decorator:
    """A repeatable option that assigns values, which the command is given nested."""

    def read(_: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
        if not given:
            return {}
        from typedrag.experiments.evaluate.config_file import with_settings

        return with_settings({}, given, max(option.opts, key=len))

    return click.option(*names, multiple=True, metavar=metavar, callback=read, **settings)


def nested(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags as a config nests them.

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
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def metrics_of(options: Mapping[str, Any], named: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The metrics that `--metric` names, with the options of `--metric-option`; None for none.

    Raises:
        InputError: If options are given for another.
    """
    if unknown := options.keys() - {metric["name"] for metric in named}:
        raise InputError(
            f"--metric-option is given for {', '.join(sorted(unknown))}", "Name the metric: --metric NAME,…"
        )
    return [{**metric, "options": options.get(metric["name"], {})} for metric in named] or None


def _read_fields(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    if not given:
        return {}
    from typedrag.datasets import field_mapping

    return field_mapping(given)


def _wait(context: click.Context, _: click.Parameter, seconds: float | None) -> None:
    if seconds is not None:
        context.with_resource(_waiting(seconds))


@contextmanager
def _waiting(seconds: float) -> Iterator[None]:
    token = timeout_given.set(seconds)
    try:
        yield
    finally:
        timeout_given.reset(token)


timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    expose_value=False,
    callback=_wait,
    help="That an LM may take to reply, before it is asked once more and given up. Default: 120; 300 for LMs that "
    "reason first, 600 for embedded ones.",
)

set_option = click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE",
    help="Any setting of the file, by its path, such as lm.max_tokens=256 or programs.NAME.options.top_k=3.",
)  # fmt: skip

config_options = together(
    click.option(
        "--config", type=click.Path(path_type=Path), help="A YAML file; see configs/. Other options override it."
    ),
    set_option,
)  # fmt: skip

program_options = together(
    click.option("--as-published", "program__as_published", is_flag=True, default=None,
        help="Of --program: Typed-RAG as its paper draws it."),
    assignments("-o", "--option", "program__options", help="Any option of --program."),
    click.option("--reranker", "program__reranker",
        help="Of --program: none, bi-encoder[:NAME], cross-encoder[:NAME], list:FOLDER, …"),
    click.option("--retriever", "program__retriever", help="Of --program: bm25, dense, hybrid[:WEIGHT], auto or http://HOST:PORT."),
)  # fmt: skip

index_option = click.option(
    "--index", type=click.Path(path_type=Path), help="Default: TYPEDRAG_INDEX, else a sample corpus."
)


def field_option(name: str = "fields") -> Decorator:
    """The columns of a file of one's own, as a mapping of this name."""
    return click.option(
        "--field", name, multiple=True, metavar="NAME=COLUMN", callback=_read_fields,
        help="Which column of a file of your own holds what, such as answers=gold; repeatable.",
    )  # fmt: skip


def dataset_options(path: str) -> Decorator:
    """The dataset of a config; `path` is the help of where it is."""
    return together(
        click.option("--dataset", "dataset__name", help="See: typedrag datasets list."),
        click.option("--path", "dataset__path", type=click.Path(path_type=Path), help=path),
        click.option("--subset", "dataset__subset", help="Of the dataset; default: all."),
        field_option("dataset__fields"),
    )


metric_option_option = assignments(
    "--metric-option", "metric_options", metavar="METRIC.NAME=VALUE", help="Of a metric."
)


def scorer_options(scorer: str) -> Decorator:
    """The LM behind judges; `scorer` is its help."""
    return together(
        click.option("--scorer", "scorer__spec", help=scorer),
        click.option("--scorer-api-base", "scorer__api_base", help="Address of its server; default: --api-base."),
    )


def speed_options(threads: str) -> Decorator:
    """How much is under way at once; `threads` says of what."""
    return together(
        click.option("--threads", type=click.IntRange(1), help=f"{threads} under way at once; default: 16."),
        click.option("--calls-in-flight", type=click.IntRange(1), help="LM calls at once; default: 16."),
    )


tracking_options = together(
    click.option("--tracking/--no-tracking", "tracking__enabled", default=None,
        help="Whether MLflow is told; by default it is."),
    click.option("--tracking-uri", "tracking__uri",
        help="Of MLflow; default: MLFLOW_TRACKING_URI, else in typedrag's cache folder."),
)  # fmt: skip
