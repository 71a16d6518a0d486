"""Options that commands share; an option of a config is named by its path: `lm__api_base` is `lm.api_base`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from typedrag.core.call_context import use_context
from typedrag.core.errors import InputError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order of the help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def assignments(*names: str, metavar: str = "NAME=VALUE", **settings: Any) -> Decorator:
    """A repeatable option of assignments, which the command gets as a nested dict."""

    def read(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
        if not values:
            return {}
        from typedrag.experiments.config_file import with_settings

        return with_settings({}, values, max(option.opts, key=len))

    return click.option(*names, multiple=True, metavar=metavar, callback=read, **settings)


def listed(*names: str, help: str) -> Decorator:
    """A repeatable option of names, which the command gets as one text with commas, as if all were given at once.

    Without it, all but the last of a repeated option would be lost silently.
    """

    def join(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
        return ",".join(values) if values else None

    return click.option(*names, multiple=True, callback=join, help=f"{help} Several: with commas, or repeated.")


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
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def metrics_of(options: Mapping[str, Any], named: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The metrics of `--metric` with their options of `--metric-option`; None if there are none."""
    if unknown := options.keys() - {metric["name"] for metric in named}:
        raise InputError(
            f"--metric-option is given for {', '.join(sorted(unknown))}", "Name the metric: --metric NAME,…"
        )
    return [{**metric, "options": options.get(metric["name"], {})} for metric in named] or None


def _read_fields(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    if not values:
        return {}
    from typedrag.datasets import field_mapping

    return field_mapping(values)


def _wait(context: click.Context, _: click.Parameter, seconds: float | None) -> None:
    if seconds is not None:
        context.with_resource(use_context(timeout=seconds))


timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    expose_value=False,
    callback=_wait,
    help="Time limit of an LM's reply; it is asked once more, then given up. Default: 120; 300 for LMs that reason "
    "first, 600 for embedded ones.",
)

set_option = click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE",
    help="Any setting of the config, by its path, such as lm.max_tokens=256 or programs.NAME.options.top_k=3.",
)  # fmt: skip

config_options = together(
    click.option(
        "--config", type=click.Path(path_type=Path), help="YAML file, see configs/; other options override it."
    ),
    set_option,
)  # fmt: skip

program_options = together(
    click.option("--as-published", "program__as_published", is_flag=True, default=None,
        help="Use the options and the reranker that the program's paper has."),
    assignments("-o", "--option", "program__options",
        help="Set any option of --program; of a run of several in --config by RUN.NAME=VALUE; repeatable."),
    click.option("--reranker", "program__reranker",
        help="Of --program: none, bi-encoder[:NAME], cross-encoder[:NAME], list:FOLDER, …"),
    click.option("--retriever", "program__retriever",
        help="Of --program: bm25, dense, hybrid[:WEIGHT], auto, gold, http://HOST:PORT, milvus:… or pyserini:…"),
)  # fmt: skip

index_option = click.option(
    "--index", type=click.Path(path_type=Path), help="Index folder. Default: TYPEDRAG_INDEX, else a sample corpus."
)


def field_option(name: str = "fields") -> Decorator:
    """The option `--field`, as a mapping of this name."""
    return click.option(
        "--field", name, multiple=True, metavar="NAME=COLUMN", callback=_read_fields,
        help="Column of a field in a file of your own, such as answers=gold; repeatable.",
    )  # fmt: skip


def dataset_options(path: str) -> Decorator:
    """The options of a config's dataset; `path` is the help of `--path`."""
    return together(
        click.option("--dataset", "dataset__name", help="Name of the dataset; see typedrag datasets list."),
        click.option("--path", "dataset__path", type=click.Path(path_type=Path), help=path),
        listed("--subset", "dataset__subset", help="Subset of the dataset; default: all."),
        field_option("dataset__fields"),
    )


metric_option_option = assignments(
    "--metric-option", "metric_options", metavar="METRIC.NAME=VALUE", help="Option of a metric; repeatable."
)


def scorer_options(scorer: str) -> Decorator:
    """The options of the LM behind judges; `scorer` is the help of `--scorer`."""
    return together(
        click.option("--scorer", "scorer__spec", help=scorer),
        click.option("--scorer-api-base", "scorer__api_base", help="Address of its server; default: --api-base."),
    )


calls_in_flight_option = click.option(
    "--calls-in-flight", type=click.IntRange(1), help="LM calls at once; default: 16."
)


def speed_options(threads: str) -> Decorator:
    """The options of concurrency; `threads` names what runs at once."""
    return together(
        click.option("--threads", type=click.IntRange(1), help=f"{threads} at once; default: 16."),
        calls_in_flight_option,
    )


def executor_options(default: str | None = None) -> Decorator:
    """The options of what answers the questions of a run."""
    return together(
        click.option("--executor", default=default,
            help="local, or workers of a Ray cluster: ray, ray:auto, ray:HOST:PORT, ray://HOST:PORT. Default: local."),
        click.option("--workers", type=click.IntRange(1), help="Workers of --executor ray; default: one for each CPU."),
    )  # fmt: skip


cap_options = together(
    click.option("--max-tokens-spent", "caps__tokens", type=click.IntRange(1),
        help="Stop where LMs have read and written so many."),
    click.option("--max-lm-calls", "caps__lm_calls", type=click.IntRange(1), help="Stop after so many LM calls."),
    click.option("--max-cost", "caps__cost", type=click.FloatRange(0, min_open=True),
        help="Stop where so many dollars are spent."),
    click.option("--max-minutes", "caps__minutes", type=click.FloatRange(0, min_open=True),
        help="Stop after so many minutes."),
)  # fmt: skip

tracking_options = together(
    click.option("--tracking/--no-tracking", "tracking__enabled", default=None,
        help="Whether to track in MLflow; default: yes."),
    click.option("--tracking-uri", "tracking__uri",
        help="MLflow's store; default: MLFLOW_TRACKING_URI, else in typedrag's data folder."),
)  # fmt: skip
