"""The commands of `typedrag` with their arguments and options."""

from collections.abc import Iterator
from enum import Enum
from typing import Any

import click

from typedrag.cli.main import cli


def command_line() -> dict[str, Any]:
    """By the words of a command: its help, its arguments and its options."""
    return {path: _about(command) for path, command in _commands("typedrag", cli)}


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner
            yield from _commands(f"{path} {name}", inner)


def _about(command: click.Command) -> dict[str, Any]:
    return {
        "help": [" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n")],
        "arguments": {p.name: _parameter(p) for p in command.params if isinstance(p, click.Argument)},
        "options": {
            " / ".join(filter(None, (", ".join(o.opts), ", ".join(o.secondary_opts)))): {
                **_parameter(o),
                "help": o.help,
                "variable": o.envvar,
            }
            for o in command.params
            if isinstance(o, click.Option)
        },
    }


def _parameter(parameter: click.Parameter) -> dict[str, Any]:
    about = {
        "type": _type(parameter.type),
        "default": _value(parameter.default),
        "required": parameter.required,
        "multiple": getattr(parameter, "multiple", False),
        "count": None if parameter.nargs == 1 else parameter.nargs,
        "flag": getattr(parameter, "is_flag", False),
    }
    return {name: value for name, value in about.items() if value is not None and value is not False}


def _type(type_: click.ParamType) -> str:
    if isinstance(type_, click.Choice):
        return " | ".join(str(_value(choice)) for choice in type_.choices)
    if isinstance(type_, click.IntRange | click.FloatRange):
        return f"{type_.name} {type_._describe_range()}"
    if isinstance(type_, click.Tuple):
        return ", ".join(map(_type, type_.types))
    return str(type_.name)


def _value(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return value if isinstance(value, str | int | float) else None  # click has an object of its own for none
