"""Settings as the command line gives them: `name=value` and `group.name=value`."""

from __future__ import annotations

from typing import Any

from typedrag.errors import InputError


def nested(assignments: tuple[str, ...], flag: str) -> dict[str, Any]:
    """`a.b=1` as `{"a": {"b": 1}}`, with values read as YAML does, but that `a=` gives an empty text.

    Args:
        assignments: In the order given.
        flag: That gave them, for messages.

    Raises:
        InputError: If one sets nothing, or something twice.

    Example:
        >>> nested(("top_k=5", "reason.combine=pool"), "--option")
        {'top_k': 5, 'reason': {'combine': 'pool'}}
        >>> nested(("hanrag.revelator_lm=",), "--option")
        {'hanrag': {'revelator_lm': ''}}
    """
    import yaml

    values: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, value = assignment.partition("=")
        *groups, name = path.split(".")
        if not equals or not all((*groups, name)):
            raise InputError(f"{flag} '{assignment}' sets nothing", "Write NAME=VALUE")
        holder = values
        for group in groups:
            holder = holder.setdefault(group, {})
            if not isinstance(holder, dict):
                raise InputError(f"{flag} '{assignment}': {group} is a value already", "Set it once")
        try:
            holder[name] = yaml.safe_load(value) if value else ""
        except yaml.YAMLError:
            holder[name] = value
    return values
