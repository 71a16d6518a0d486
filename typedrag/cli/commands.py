"""Command groups with a file for each command, and environment variables for all options."""

from __future__ import annotations

import os
from importlib import import_module
from typing import ClassVar

import click


class Commands(click.Group):
    """A group that imports a command on use, and reads its options from the environment as well."""

    names: ClassVar[tuple[str, ...]] = ()
    """The names of the commands."""
    variables: ClassVar[str] = "TYPEDRAG"
    """The prefix of its options' environment variables."""
    modules: ClassVar[str] = "typedrag.cli."
    """The prefix of its commands' modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(self.names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None if there is none."""
        if cmd_name not in self.names:
            return None
        command: click.Command = import_module(self.modules + cmd_name.replace("-", "_")).command
        read_environment(command, f"{self.variables}_{variable(cmd_name)}")
        return command


def variable(name: str) -> str:
    """A name of the command line in the spelling of environment variables.

    Example:
        >>> variable("--top-k")
        'TOP_K'
    """
    return name.lstrip("-").replace("-", "_").upper()


def read_environment(command: click.Command, prefix: str) -> None:
    """Let all options be set by environment variables too; the help names the variables that are set.

    Args:
        command: A command, or a group with its commands.
        prefix: The prefix of the variables' names.
    """
    options = [option for option in command.params if isinstance(option, click.Option) and not option.is_eager]
    for option in options:
        name = next(name for name in option.opts if name.startswith("--"))
        option.envvar = f"{prefix}_{variable(name)}"
        option.show_envvar = option.envvar in os.environ
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            read_environment(inner, f"{prefix}_{variable(name)}")
    elif options:
        command.epilog = f"An option may come from the environment: {options[0].opts[-1]} from {options[0].envvar}."
