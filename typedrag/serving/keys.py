"""API keys: kept hashed in a file that only its user may read, whose changes a server follows."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from typedrag.errors import InputError, unusable
from typedrag.files.locks import turn_at

logger = logging.getLogger(__name__)

PREFIX = "tr-"
"""What keys begin with, so that scanners for leaked keys can tell them."""
_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][\w.@-]{0,63}", re.ASCII)
_WRITABLE_BY_OTHERS = 0o022


class Key(BaseModel):
    """A key as it is kept: who has the file cannot ask with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=rf"^{_NAME.pattern}$")
    """Of whom it was given to, as the log tells it."""
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the key: 256 random bits need no slow hash."""
    rate: PositiveInt | None = None
    """Requests a minute; None is the server's `rate`."""
    created: datetime


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keys: tuple[Key, ...] = ()


class KeyFile:
    """The keys in a file.

    Args:
        path: Of the file; it may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Sequence[Key]:
        """The keys; none where there is no file.

        Raises:
            InputError: If it cannot be read, or holds something else.
        """
        try:
            return _Kept.model_validate_json(self.path.read_bytes()).keys
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise unusable(self.path, error) from error
        except ValidationError:
            raise InputError(f"{self.path} holds no keys of typedrag", "Make one: typedrag keys add NAME") from None

    def add(self, name: str, rate: int | None = None) -> str:
        """A new key, which nobody can be told again.

        Raises:
            InputError: If the name is taken or is none, or the file cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise InputError(f"'{name}' is no name of a key", "Take up to 64 letters, digits and ._@-")
        key = PREFIX + secrets.token_urlsafe(_BYTES)
        made = Key(name=name, hash=_hash(key), rate=rate, created=datetime.now(UTC).replace(microsecond=0))
        with self._turn():
            kept = self.read()
            if any(other.name == name for other in kept):
                raise InputError(f"there is a key '{name}' already", f"Revoke it: typedrag keys revoke {name}")
            self._write((*kept, made))
        return key

    def revoke(self, name: str) -> None:
        """Take a key away.

        Raises:
            InputError: If there is none of that name, or the file cannot be written.
        """
        with self._turn():
            kept = self.read()
            left = tuple(key for key in kept if key.name != name)
            if len(left) == len(kept):
                raise InputError(f"there is no key '{name}'", f"There are: {', '.join(k.name for k in kept) or 'none'}")
            self._write(left)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with turn_at(self.path):
                yield
        except OSError as error:
            raise unusable(self.path, error) from error

    def _write(self, keys: Sequence[Key]) -> None:
        handle, part = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)  # with mode 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(_Kept(keys=tuple(keys)).model_dump_json(indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            Path(part).replace(self.path)
        except OSError:
            Path(part).unlink(missing_ok=True)
            raise


class Keyring:
    """The keys that a server lets in, read again when their file has changed.

    A file that is gone or broken leaves those in force that were read last, and the log says so.

    Args:
        path: Of the file.

    Raises:
        InputError: If it is not there, cannot be read, or others may write it.
    """

    def __init__(self, path: Path) -> None:
        self._file = KeyFile(path)
        self._seen = _look(path)
        if self._seen is None:
            raise InputError(f"{path} is not there", f"Make a key: typedrag keys --keys {path} add NAME")
        if os.name != "nt" and self._seen[0] & _WRITABLE_BY_OTHERS:
            raise InputError(f"others may write {path}", f"chmod 600 {path}")
        self._keys = self._file.read()

    @property
    def count(self) -> int:
        """How many keys there are."""
        return len(self._keys)

    def find(self, given: str) -> Key | None:
        """The key that somebody gives; None if it is none. How long it takes tells nothing of the others."""
        self._follow()
        digest = _hash(given)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.hash, digest):
                found = key
        return found

    def _follow(self) -> None:
        seen = _look(self._file.path)
        if seen == self._seen:
            return
        self._seen = seen
        if seen is None:
            logger.error("the file of keys is gone: those read last stay in force")
            return
        try:
            self._keys = self._file.read()
        except InputError as error:
            logger.error("%s: the keys read last stay in force", error.problem)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _look(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns
