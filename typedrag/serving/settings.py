"""The settings and limits of a server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from typedrag.core.errors import InputError


class QueueLimits(BaseModel):
    """The limits of whatever takes questions, with defaults for one process on a small machine."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    running: PositiveInt = 64
    """Questions answered at once."""
    queue: NonNegativeInt = 256
    """Questions that may wait for their turn; more are refused with 429."""
    deadline: PositiveFloat = 120.0
    """Seconds from a request to its answer, waiting included; then it ends with 504 and makes no further LM call."""


class Limits(QueueLimits):
    """The limits of answering, over HTTP or stdio."""

    question_tokens: PositiveInt = 100_000
    """Tokens that the LM calls of a question may read and write; their number is an option of the program."""
    lm_calls: PositiveInt = 64
    """LM calls at once."""
    breaker_failures: PositiveInt = 5
    """Consecutive questions that find the LM or the index out of order, after which others are refused with 503."""
    breaker_seconds: PositiveFloat = 10.0
    """Seconds for which they are refused; then one question is let through as a trial."""
    registry_seconds: PositiveFloat = 30.0
    """Seconds between checks of the registry for moved aliases."""


class HTTPLimits(QueueLimits):
    """The limits of a server over HTTP, of programs or of an index."""

    body_bytes: PositiveInt = 1_048_576
    """Bytes of a request's body; a larger one is refused with 413."""
    batch: PositiveInt = 32
    """Questions in a batch."""
    keys: Path | None = None
    """The key file; without it and without TYPEDRAG_CLIENT_KEYS, the server listens on loopback only."""
    no_keys: bool = False
    """Whether anyone who reaches the server may ask without a key."""
    rate: PositiveInt = 120
    """Requests per minute of a key without its own rate; without keys, of a client's address. A batch counts as its
    questions."""
    parallel: PositiveInt | None = None
    """Questions of a key or address at once, waiting ones included; by default as many as there is room for, until
    others ask."""
    daily_tokens: PositiveInt | None = None
    """LM tokens per day of a key without its own number, and without keys, of a client's address; by default no
    limit."""
    tls_cert: Path | None = None
    """PEM file with the certificate for HTTPS, and its chain."""
    tls_key: Path | None = None
    """PEM file with its key, if the other one has none."""
    keep_alive: PositiveInt = 75
    """Seconds for which an idle connection stays open; more than a load balancer keeps its own, which is mostly 60."""
    read_seconds: PositiveFloat = 10.0
    """Seconds within which a request's body must arrive, and for which a client may take nothing of its reply."""
    hosts: tuple[str, ...] = ()
    """Other names than localhost that a server without keys answers to, such as host.docker.internal."""
    origins: tuple[str, ...] = ()
    """Web origins whose pages may ask."""
    log_questions: bool = False
    """Whether logs and spans have the text of questions."""
    drain: PositiveFloat | None = None
    """Seconds for questions under way to end when the server stops; by default the deadline, by which each has
    ended."""


class Settings(HTTPLimits, Limits):
    """The settings and limits of a server of programs over HTTP."""

    feedback: Path | None = None
    """The file of feedback; without one, feedback is refused."""
    standalone: bool = True
    """Whether a chat's last question is rewritten to stand alone by its earlier turns, which takes an LM call."""
    sources_in_text: bool = False
    """Whether the sources of an answer follow its text in a chat, for clients that show no annotations."""
    page: bool = True
    """Whether there is a web page at `/`."""


class IndexSettings(HTTPLimits):
    """The limits of an index server; some have other defaults than those of a server of programs."""

    running: PositiveInt = 1
    """Searches at once. Each takes all requests that wait, and one keeps all cores busy."""
    queue: NonNegativeInt = 1024
    """Requests that wait for their turn; more are refused with 429."""
    deadline: PositiveFloat = 30.0
    """Seconds from a request to its passages, the wait included; then it ends with 504."""
    batch: PositiveInt = 256
    """The most queries of a request."""
    rate: PositiveInt = 1_000_000
    """Queries a minute of a key that has no rate of its own; without keys, of a client's address."""


L = TypeVar("L", bound=QueueLimits)


def read_settings(values: Mapping[str, Any], kind: type[L]) -> L:
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        known = f"Settings are: {', '.join(kind.model_fields)}"
        if name in Settings.model_fields and name not in kind.model_fields:
            raise InputError(f"--{name.replace('_', '-')} is one of typedrag serve", f"Leave it out. {known}") from None
        raise InputError(f"--{name.replace('_', '-')}: {first['msg']}", known) from None
