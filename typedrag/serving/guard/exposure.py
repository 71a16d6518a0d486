"""The exposure of a server: who can reach it, and whether that is intended."""

from __future__ import annotations

import socket

from typedrag.errors import InputError
from typedrag.serving.guard.door import is_loopback
from typedrag.serving.keys import Keyring
from typedrag.serving.settings import HTTPLimits


def exposure(host: str, settings: HTTPLimits) -> str:
    """A message that tells the user who may ask a server that listens at a host.

    Raises:
        InputError: If strangers could ask without a key and `no_keys` is not set, the key file cannot be used, or the
            host has no address.
    """
    if settings.keys and settings.no_keys:
        raise InputError("--keys and --no-keys contradict each other", "Leave one out")
    if settings.keys:
        return f"Keys that are let in: {Keyring(settings.keys).count}."
    if settings.no_keys:
        return f"WARNING: no key is needed. Whoever reaches {host} may ask, at your cost."
    if not all(is_loopback(address) for address in _addresses(host)):
        raise InputError(
            f"without keys the server would answer anyone who reaches {host}",
            "Make a key (typedrag keys add NAME) and name its file by --keys FILE, or say --no-keys",
        )
    return "WARNING: no key is needed. Whoever uses this machine may ask; others cannot reach the server."


def _addresses(host: str) -> list[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError as error:
        raise InputError(f"--host {host} has no address: {error.strerror}", "Name another") from None
