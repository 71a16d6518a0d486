"""Keeping keys and addresses out of what a run leaves behind."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import dspy

HIDDEN = "[hidden]"
_KEY_ENDINGS = ("_API_KEY", "_ACCESS_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_ADDRESS_ENDINGS = ("_API_BASE", "_BASE_URL", "_TRACKING_URI")
_SHORTEST = 8
"""Shorter ones are placeholders, such as EMPTY, and would hide words."""
_LOCAL = ("localhost", "127.0.0.1", "::1")


class Redactor:
    """Replaces secrets in texts.

    Example:
        >>> Redactor(["sk-1234567890"])("Incorrect key sk-1234567890 given")
        'Incorrect key [hidden] given'
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({s for s in secrets if len(s) >= _SHORTEST}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without them."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


def redactor_for(lms: Iterable[dspy.LM], environment: Mapping[str, str] | None = None) -> Redactor:
    """Hides the keys and addresses that these LMs use, and those in the environment."""
    environment = os.environ if environment is None else environment
    secrets = [value for name, value in environment.items() if name.upper().endswith(_KEY_ENDINGS)]
    for name, value in environment.items():
        if name.upper().endswith(_ADDRESS_ENDINGS) and urlsplit(value).hostname:
            secrets.extend(_parts(value))
    for lm in lms:
        secrets.append(str(lm.kwargs.get("api_key") or ""))
        secrets.extend(str(value) for value in (lm.kwargs.get("extra_headers") or {}).values())
        secrets.extend(_parts(str(lm.kwargs.get("api_base") or "")))
    return Redactor(secrets)


def _parts(address: str) -> list[str]:
    """An address, and what of it an error may show alone."""
    url = urlsplit(address)
    host = "" if url.hostname in _LOCAL else url.hostname or ""
    names = [name for name in (url.netloc, host) if set(name) & set(".:@")]  # others may be words of any prompt
    return [address, address.rstrip("/"), *names, url.password or ""]
