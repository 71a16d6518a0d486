"""`typedrag datasets build NAME`: a command for each builder, whose options are the builder's fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click

from typedrag.cli import options
from typedrag.cli.commands import read_environment
from typedrag.cli.opening import claim_file, say
from typedrag.cli.progress import RunsProgress
from typedrag.core.errors import InputError

if TYPE_CHECKING:
    import dspy
    from pydantic.fields import FieldInfo

    from typedrag.builders import Builder, Built

_VARIABLES = "TYPEDRAG_DATASETS_BUILD"
_KEPT = "Replies of the LM are stored in --store as they come: after an interruption, the same command asks only for\n"
_KEPT += "the missing ones."

_output_options = options.together(
    click.option("--out", type=click.Path(path_type=Path), required=True, help="The JSONL file to write."),
    click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON."),
)
_asking_options = options.together(
    options.timeout_option,
    click.option("--api-base", "base", help="Address of the OpenAI-compatible server of LMs without @URL."),
    click.option("--threads", type=click.IntRange(1), default=16, show_default=True, help="LM calls at once."),
    click.option("--store", type=click.Path(path_type=Path), help="Store of LM replies; default: beside --out."),
    options.cap_options,
)
_lm_option = click.option("--lm", "spec", help="LM that writes: embedded[:NAME], vllm:MODEL or a DSPy name.")


class Builders(click.Group):
    """The builders by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all builders."""
        from typedrag.builders import BUILDERS

        return list(BUILDERS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a builder; None if there is none of this name."""
        from typedrag.builders import BUILDERS

        if cmd_name not in BUILDERS:
            return None
        command = _command(BUILDERS[cmd_name])
        read_environment(command, f"{_VARIABLES}_{cmd_name.replace('-', '_').upper()}")
        return command


def _command(builder: type[Builder]) -> click.Command:
    groups = [_output_options]
    if builder.asks_lm:
        groups = [*([] if "lm" in builder.model_fields else [_lm_option]), _asking_options, *groups]
    run: Callable[..., Any] = partial(_build, builder)
    for decorate in reversed(groups):
        run = decorate(run)
    for name, field in reversed(builder.model_fields.items()):
        run = _option(name, field)(run)
    help = cleandoc(builder.__doc__ or "") + (f"\n\n{_KEPT}" if builder.asks_lm else "")
    return click.command(builder.name, help=help)(run)


def _build(
    builder: type[Builder],
    *,
    out: Path,
    as_json: bool,
    spec: str | None = None,
    base: str | None = None,
    threads: int = 1,
    store: Path | None = None,
    **flags: Any,
) -> None:
    from pydantic import ValidationError

    from typedrag.experiments.config import SpendingCaps
    from typedrag.lms.client import limit_calls_in_flight
    from typedrag.lms.cost import track_calls
    from typedrag.lms.lm import open_lm
    from typedrag.lms.replies import use_reply_store
    from typedrag.runs.work import Stages

    claim_file(out)
    caps = {name.removeprefix("caps__"): flags.pop(name) for name in [n for n in flags if n.startswith("caps__")]}
    try:
        settings = builder(**{name: value for name, value in flags.items() if value not in (None, (), {})})
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']}", "See --help") from None
    limit_calls_in_flight(threads)
    replies = store or out.with_name(f"{out.name}.sqlite")
    with ExitStack() as stack:

        def opened(named: str | None) -> dspy.LM:
            if not used:
                stack.enter_context(use_reply_store(replies))
                used.append(replies)
            return track_calls(open_lm(named or spec, api_base=base, cache=True))

        used: list[Path] = []
        shown = stack.enter_context(RunsProgress(lambda: bool(used), "run the same command again", label="{}"))
        stages = Stages(threads, stop=SpendingCaps(**options.chosen(**caps)).stopper(), listener=shown.show)
        built = settings.build(stages, opened)
    _finish(built, settings, out, as_json)


def _finish(built: Built, builder: Builder, out: Path, as_json: bool) -> None:
    """Write the rows, and print what was left out and why, and the file."""
    from typedrag.files.text_files import write_json_lines

    left_out = +built.left_out
    for reason, count in left_out.most_common():
        say(f"left out: {count:,} ({reason})")
    if not built.rows:
        raise InputError("nothing was made", "Look at what was left out and why")
    write_json_lines(out, built.rows)
    counts = builder.counts(built)
    if as_json:
        click.echo(json.dumps({builder.of: counts, "left out": dict(left_out)}, indent=1))
        return
    for name, count in counts.items():
        say(f"{name}: {count:,}")
    say(f"{len(built.rows):,} rows")
    click.echo(str(out))


def _option(name: str, field: FieldInfo) -> options.Decorator:
    """The option of a field: its name, its type and its description."""
    flag, about = "--" + name.replace("_", "-"), " ".join((field.description or "").split())
    kind, repeated = _kind(field.annotation)
    if name == "field":
        return options.field_option()
    if name == "subset":
        return options.listed(flag, help=about)
    if get_origin(kind) is Mapping:
        return click.option(flag, name, multiple=True, metavar="NAME=VALUE,…", callback=_read_choices, help=about)
    if not (repeated or field.is_required() or field.default is None or "default" in about.lower() or kind is bool):
        about = f"{about.rstrip('.')}; default: {_shown(field.default)}."
    if kind is bool:
        return click.option(
            f"{flag}/--no-{flag[2:]}" if field.default else flag,
            name, is_flag=True, default=None, help=about + " Default: yes." * bool(field.default),
        )  # fmt: skip
    return click.option(
        flag, name, type=_type(kind, field.metadata), multiple=repeated, required=field.is_required(), help=about
    )


def _kind(annotation: Any) -> tuple[Any, bool]:
    """The type of a field's values without None, and whether there may be several."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(kind for kind in get_args(annotation) if kind is not type(None))
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], True
    return annotation, False


def _type(kind: Any, metadata: list[Any]) -> Any:
    if hasattr(kind, "__metadata__"):  # an `Annotated` within a tuple or an optional
        kind, metadata = kind.__origin__, [*metadata, *kind.__metadata__]
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if issubclass(kind, Path):
        file = any(getattr(each, "path_type", "") == "file" for each in metadata)
        return click.Path(path_type=Path, exists=file, dir_okay=not file)
    if issubclass(kind, StrEnum):
        return click.Choice([member.value for member in kind])
    bounds = {n: getattr(each, n) for each in metadata for n in ("ge", "gt", "le", "lt") if hasattr(each, n)}
    if not bounds:
        return kind
    if kind is int:
        return click.IntRange(bounds["gt"] + 1 if "gt" in bounds else bounds.get("ge"), bounds.get("le"))
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    return click.FloatRange(low, high, min_open="gt" in bounds, max_open="lt" in bounds)


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def _read_choices(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    chosen = {}
    for choice in values:
        name, equals, categories = choice.partition("=")
        if not equals:
            raise InputError(f"'{choice}' chooses nothing", "Write it like turn=first-turn")
        chosen[name] = tuple(category.strip() for category in categories.split(","))
    return chosen
