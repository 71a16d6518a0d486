"""The names of executors: `local`, or `ray[:ADDRESS]` for a Ray cluster."""

from __future__ import annotations

from typedrag.errors import InputError

FORMS = "local, ray, ray:auto, ray:HOST:PORT or ray://HOST:PORT"
LOCAL, CLIENT = "local", "ray://"


def ray_address(executor: str) -> str | None:
    """The address of the Ray cluster that an executor names, empty for that of `RAY_ADDRESS` or a new one; None for
    `local`.

    Raises:
        InputError: If the executor has none of the forms.

    Example:
        >>> ray_address("local"), ray_address("ray"), ray_address("ray:auto"), ray_address("ray://head:10001")
        (None, '', 'auto', 'ray://head:10001')
    """
    kind, colon, address = executor.partition(":")
    if executor == LOCAL:
        return None
    if kind != "ray" or (colon and not address.strip("/")):
        raise InputError(f"'{executor}' is no executor", f"Write one of: {FORMS}")
    if executor.startswith(CLIENT):
        return executor
    if colon and address != "auto" and not address.rpartition(":")[2].isdecimal():
        raise InputError(f"'{executor}' names no port", f"Write one of: {FORMS}")
    return address
