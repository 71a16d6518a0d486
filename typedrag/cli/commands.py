"""Groups whose commands are a file each, and the environment variable of every option."""

from __future__ import annotations

import os
from importlib import import_module
from typing import ClassVar

import click


class Commands(click.Group):
    """A group that imports a command when it is named, and lets the environment give its options."""

    names: ClassVar[tuple[str, ...]] = ()
    """Of the commands."""
    variables: ClassVar[str] = "TYPEDRAG"
    """What the variables of its options begin with."""
    modules: ClassVar[str] = "typedrag.cli."
    """What the names of its commands' modules begin with."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all."""
        return list(self.names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        if cmd_name not in self.names:
            return None
        command: click.Command = import_module(self.modules + cmd_name.replace("-", "_")).command
        read_environment(command, f"{self.variables}_{variable(cmd_name)}")
        return command


def variable(name: str) -> str:
    """A name of the command line as it is written in an environment variable.

    Example:
        >>> variable("--top-k")
        'TOP_K'
    """
    return name.lstrip("-").replace("-", "_").upper()


def read_environment(command: click.Command, prefix: str) -> None:
    """Let each option that sets something also be given by the variable of its name; those set are named in the help.

    Args:
        command: One, or a group and all in it.
        prefix: Of the variables' names.
    """
    options = [option for option in command.params if isinstance(option, click.Option) and not option.is_eager]
    for option in options:
        option.envvar = f"{prefix}_{variable(max(option.opts, key=len))}"
        option.show_envvar = option.envvar in os.environ
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            read_environment(inner, f"{prefix}_{variable(name)}")
    elif options:
        command.epilog = f"An option may come from the environment: {options[0].opts[-1]} from {options[0].envvar}."
