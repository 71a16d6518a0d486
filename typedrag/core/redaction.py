"""Redaction: keys are removed from all output, and addresses from what a run leaves behind."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

if TYPE_CHECKING:
    import dspy

HIDDEN = "[hidden]"
_KEY_ENDINGS = ("_API_KEY", "_RETRIEVER_KEY", "_ACCESS_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_ADDRESS_ENDINGS = ("_API_BASE", "_BASE_URL", "_TRACKING_URI")
_SHORTEST = 8
"""Characters of a secret at least: shorter ones are placeholders, such as EMPTY, and would hide words."""
_KEY_WORDS = r"[\w.-]*(?:key|token|secret|password|signature|sig)"
_KEY_NAME = re.compile(_KEY_WORDS, re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)(?:[^/\s'\"@]*:[^/\s'\"]*|[^/\s'\"@:]{16,})@")
_KEY_IN_QUERY = re.compile(rf"([?&]{_KEY_WORDS}=)[^&#\s'\")]+", re.IGNORECASE)
_LOCAL = ("localhost", "127.0.0.1", "::1")


class Redactor:
    """Replaces secrets in texts, however an address or JSON spells them.

    Example:
        >>> Redactor(["sk-1234567890"])("Incorrect key sk-1234567890 given")
        'Incorrect key [hidden] given'
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        spellings: set[str] = set()
        for secret in secrets:
            if len(secret) >= _SHORTEST:
                quoted = quote(secret, safe="")
                lower = re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), quoted)
                spellings |= {secret, unquote(secret), quoted, lower, quote(secret), json.dumps(secret)[1:-1]}
        self._secrets = sorted(spellings, key=len, reverse=True)

    @property
    def longest(self) -> int:
        """Characters of a secret's longest spelling; as many at the end of a text may be the beginning of a secret."""
        return len(self._secrets[0]) if self._secrets else 0

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


def redact_values(value: Any, redact: Callable[[str], str]) -> Any:
    """JSON values with `redact` applied to all texts in them, names included."""
    if isinstance(value, Mapping):
        return {redact_values(name, redact): redact_values(inner, redact) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_values(inner, redact) for inner in value]
    return redact(value) if isinstance(value, str) else value


def without_keys(text: str, lm: dspy.LM | None = None) -> str:
    """A text without the keys of an LM, of the environment, and of addresses in the text.

    Example:
        >>> without_keys("no server answers at https://me:pass@host/v1?key=abc&n=1")
        'no server answers at https://[hidden]@host/v1?key=[hidden]&n=1'
    """
    return _hide_logins(Redactor([*_environment_keys(os.environ), *lm_keys(lm)])(text))


def _hide_logins(text: str) -> str:
    return _KEY_IN_QUERY.sub(rf"\1{HIDDEN}", _LOGIN.sub(f"{HIDDEN}@", text))


def make_redactor(
    lms: Iterable[dspy.LM], environment: Mapping[str, str] | None = None, *, addresses: Iterable[str] = ()
) -> Redactor:
    """Hides the keys and addresses that these LMs use, those in the environment, and other addresses."""
    environment = os.environ if environment is None else environment
    secrets = _environment_keys(environment)
    for name, value in environment.items():
        if name.upper().endswith(_ADDRESS_ENDINGS):
            secrets.extend(part for url in value.split(",") if urlsplit(url).hostname for part in _parts(url))
    for lm in lms:
        secrets.extend(lm_keys(lm))
        secrets.extend(_parts(_lm_address(lm)))
    for address in addresses:
        secrets.extend(_parts(address))
    return Redactor(secrets)


def _environment_keys(environment: Mapping[str, str]) -> list[str]:
    return [value for name, value in environment.items() if name.upper().endswith(_KEY_ENDINGS)]


def lm_keys(lm: dspy.LM | None) -> list[str]:
    """The keys that an LM sends, those in its address and headers included."""
    settings = getattr(lm, "kwargs", {})
    headers = [str(value) for value in (settings.get("extra_headers") or {}).values()]
    tokens = [header.split()[-1] for header in headers if header.split()]  # without "Bearer"
    return [str(settings.get("api_key") or ""), *headers, *tokens, *_address_keys(_lm_address(lm))]


def _lm_address(lm: dspy.LM | None) -> str:
    settings = getattr(lm, "kwargs", {})
    return str(settings.get("api_base") or settings.get("base_url") or "")


@lru_cache
def _address_keys(address: str) -> list[str]:
    url = urlsplit(address)
    user, _, _ = url.netloc.rpartition("@")
    basic = base64.b64encode(unquote(user).encode()).decode() if ":" in user else ""  # as in the request's header
    queried = [value for name, value in parse_qsl(url.query) if _KEY_NAME.fullmatch(name)]
    return [url.password or "", basic, *queried]


def _parts(address: str) -> list[str]:
    url = urlsplit(address)
    host = "" if url.hostname in _LOCAL else url.hostname or ""
    names = [name for name in (url.netloc, host) if set(name) & set(".:@")]  # other names may be words of any prompt
    return [address, address.rstrip("/"), _hide_logins(address), *names, *_address_keys(address)]
