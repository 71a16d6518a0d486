"""API keys, stored as hashes in a file that only its owner may read; a server follows its changes."""

import hashlib
import hmac
import logging
import os
import re
import secrets
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from typedrag.core.errors import InputError, names_hint, path_error
from typedrag.files.locks import wait_for_lock

logger = logging.getLogger(__name__)

PREFIX = "tr-"  # by which scanners for leaked keys recognize them
GIVEN = "TYPEDRAG_CLIENT_KEYS"  # the variable with keys of clients
_BYTES = 32
_SHORTEST = 20
_NAME = re.compile(r"[A-Za-z0-9][\w.@-]{0,63}", re.ASCII)
_WRITABLE_BY_OTHERS = 0o022


class Key(BaseModel):
    """A stored key, which is useless for asking."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=rf"^{_NAME.pattern}$")
    """The name of its holder, as in the log."""
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the key: 256 random bits need no slow hash."""
    rate: PositiveInt | None = None
    """Requests per minute; None for the server's `rate`."""
    daily_tokens: PositiveInt | None = None
    """LM tokens per day; None for the server's `daily_tokens`."""
    created: datetime


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keys: tuple[Key, ...] = ()


class KeyFile:
    """The keys in a file, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def command(self) -> str:
        """The command that changes the file, without its last words."""
        return f"typedrag keys --keys {shlex.quote(str(self.path))}"

    def read(self) -> Sequence[Key]:
        try:
            return _Kept.model_validate_json(self.path.read_bytes()).keys
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise path_error(self.path, error) from error
        except ValidationError:
            raise InputError(
                f"{self.path} holds no keys of typedrag", "Name another; typedrag keys --keys FILE add NAME makes one"
            ) from None

    def add(self, name: str, rate: int | None = None, daily_tokens: int | None = None) -> str:
        """Add a key and return it: it cannot be shown again."""
        if not _NAME.fullmatch(name):
            raise InputError(f"'{name}' is no name of a key", "Take up to 64 letters, digits and ._@-")
        key = PREFIX + secrets.token_urlsafe(_BYTES)
        created = datetime.now(UTC).replace(microsecond=0)
        entry = Key(name=name, hash=_hash(key), rate=rate, daily_tokens=daily_tokens, created=created)
        with self._changing() as keys:
            if any(other.name == name for other in keys):
                raise InputError(f"there is a key '{name}' already", f"Revoke it: {self.command} revoke {name}")
            keys.append(entry)
        return key

    def revoke(self, name: str) -> None:
        with self._changing() as keys:
            if not (named := [key for key in keys if key.name == name]):
                raise InputError(f"there is no key '{name}'", names_hint("There are", name, (k.name for k in keys)))
            keys.remove(named[0])

    @contextmanager
    def _changing(self) -> Iterator[list[Key]]:
        """Yield the keys in a turn of one's own, and keep what becomes of them."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with wait_for_lock(self.path):
                keys = list(self.read())
                yield keys
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
        except OSError as error:
            raise path_error(self.path, error) from error


class Keyring:
    """The keys that a server accepts, read again when their file changes.

    If the file is gone or broken, the keys read last stay in force, and the log says so.
    """

    def __init__(self, path: Path | None, more: str = "") -> None:
        """The keys of a file, and more as `NAME=KEY,NAME=KEY`."""
        self._given = [_read_given(pair) for pair in more.split(",") if pair.strip()]
        self._keys: Sequence[Key] = ()
        self._file = self._seen = None
        if path is None:
            return
        self._file, self._seen = KeyFile(path), _look(path)
        if self._seen is None:
            self._file.read()  # which says why, if it is there
            raise InputError(f"{path} is not there", f"Make a key: {self._file.command} add NAME")
        if os.name != "nt" and self._seen[0] & _WRITABLE_BY_OTHERS:
            raise InputError(f"others may write {path}", f"chmod 600 {path}")
        self._keys = self._file.read()

    @property
    def count(self) -> int:
        return len(self._keys) + len(self._given)

    def find(self, secret: str) -> Key | None:
        """The stored key of a secret; None if there is none. Its time does not depend on the other keys."""
        if self._file and (state := _look(self._file.path)) != self._seen:
            self._seen = state
            try:
                if state is None:
                    logger.error("the file of keys is gone: those read last stay in force")
                else:
                    self._keys = self._file.read()
            except InputError as error:
                logger.error("%s: the keys read last stay in force", error.problem)
        digest = _hash(secret)
        match = None
        for key in (*self._keys, *self._given):
            if hmac.compare_digest(key.hash, digest):
                match = key
        return match


def open_keyring(path: Path | None) -> Keyring | None:
    """The keys of a file and of the environment; None if there are none."""
    more = os.environ.get(GIVEN, "")
    return Keyring(path, more) if path or more else None


def _read_given(pair: str) -> Key:
    name, _, key = pair.strip().partition("=")
    if not _NAME.fullmatch(name) or len(key) < _SHORTEST:
        raise InputError(f"{GIVEN} holds no keys", f"Write it like NAME=KEY,NAME=KEY; a key has {_SHORTEST} characters")
    return Key(name=name, hash=_hash(key), created=datetime.now(UTC))


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _look(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mode, stat.st_ino, stat.st_size, stat.st_mtime_ns
