"""What a server allows, and how much of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError

from typedrag.errors import InputError


class Settings(BaseModel):
    """The limits of a server. All have defaults that suit one process on a small machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    running: PositiveInt = 64
    """Questions that are being answered at once."""
    queue: NonNegativeInt = 256
    """Questions that wait for their turn; more are refused with 429."""
    deadline: PositiveFloat = 120.0
    """Seconds from a request to its answer, the wait included; then it ends with 504 and makes no further LM call."""
    question_tokens: PositiveInt = 100_000
    """Tokens that the LM calls of a question may read and write together; LM calls are an option of the program."""
    lm_calls: PositiveInt = 64
    """LM calls under way at once."""
    body_bytes: PositiveInt = 65_536
    """Size of a request's body; a larger one is refused with 413."""
    batch: PositiveInt = 32
    """Questions of a batch."""
    breaker_failures: PositiveInt = 5
    """Questions in a row that find the LM or the index out of order; others are then refused at once with 503."""
    breaker_seconds: PositiveFloat = 10.0
    """For how long; then one is let through to see."""
    keys: Path | None = None
    """The file of API keys; without one, the server listens on loopback alone."""
    no_keys: bool = False
    """Whether whoever reaches the server may ask, wherever it listens."""
    rate: PositiveInt = 60
    """Requests a minute of a key that has no rate of its own; without keys, of a client's address."""
    read_seconds: PositiveFloat = 10.0
    """Seconds that a request may take to come in whole, and that a client may take nothing of its reply."""
    origins: tuple[str, ...] = ()
    """Web origins that browsers may ask from."""
    log_questions: bool = False
    """Whether logs hold the text of questions."""
    feedback: Path | None = None
    """The file that feedback is kept in; without one, it is refused."""
    standalone: bool = True
    """Whether a chat's earlier turns are used to make its last question stand alone, which takes an LM call."""
    page: bool = True
    """Whether there is a page at `/`."""
    registry_seconds: PositiveFloat = 30.0
    """After which the registry is looked at again, whether the alias of a program has moved."""
    traces: float = Field(default=0.0, ge=0.0, le=1.0)
    """The share of answers that MLflow keeps as traces, with the text of question and answer."""
    drain: PositiveFloat = 30.0
    """Seconds that questions under way are given when the server is told to stop."""


S = TypeVar("S", bound=Settings)


def read_settings(values: Mapping[str, Any], kind: type[S]) -> S:
    """The settings of a kind that a user gives.

    Raises:
        InputError: If one is unknown or does not fit.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        known = ", ".join(kind.model_fields)
        raise InputError(f"--limit {name}: {first['msg']}", f"Limits are: {known}") from None
