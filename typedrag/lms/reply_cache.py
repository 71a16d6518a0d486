"""What LMs replied, kept for the next time the same is asked of the same server: in the place of DSPy's disk cache.

DSPy's holds pickles, which run what is planted there, in a folder that all may read. This one holds JSON, in a file of
typedrag's cache folder that its user alone may open.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from pathlib import Path
from typing import Any

import dspy
from dspy.clients.cache import Cache

from typedrag.lms import embedded
from typedrag.lms.models import cache_dir

logger = logging.getLogger(__name__)

MOST = 50_000
"""Replies that are kept; the oldest go first. One takes some 4 KB."""
_TABLE = "CREATE TABLE IF NOT EXISTS replies (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, reply TEXT NOT NULL)"
_TRIM = "DELETE FROM replies WHERE number <= (SELECT MAX(number) FROM replies) - ?"


def replies_file() -> Path:
    """Where they are kept: `replies/replies.sqlite` in the cache folder."""
    return cache_dir() / "replies" / "replies.sqlite"


def keep_replies() -> None:
    """Let this process keep replies here, unless whoever wrote it has set DSPy's cache otherwise."""
    if "cache" not in vars(dspy):  # DSPy makes its own only where it is asked for
        dspy.cache = ReplyCache()


class ReplyCache(Cache):
    """DSPy's cache in a file of JSON. One that cannot be used is said once and gone without."""

    def __init__(self) -> None:
        super().__init__(enable_disk_cache=False, enable_memory_cache=False, disk_cache_dir=None)
        self._connections: dict[Path, sqlite3.Connection | None] = {}

    def cache_key(self, request: dict[str, Any], ignored_args_for_cache_key: list[str] | None = None) -> str:
        """By all that a reply depends on: the server's address, too, but for an embedded LM, whose name says it all."""
        base = request.get("api_base") or request.get("base_url") or _address_of(str(request.get("model", "")))
        server = None if embedded.is_served_at(base) else base.rstrip("/")
        ignored = ["api_key", "api_base", "base_url", "timeout"]
        return super().cache_key({**request, "_server": server}, ignored)

    def get(self, request: dict[str, Any], ignored_args_for_cache_key: list[str] | None = None) -> Any:
        """The reply; None if there is none."""
        found = self._run("SELECT reply FROM replies WHERE id = ?", self.cache_key(request))
        try:
            reply = json.loads(found[0][0]) if found else None
        except ValueError:
            return None
        return reply if isinstance(reply, dict) else None

    def put(
        self,
        request: dict[str, Any],
        value: Any,
        ignored_args_for_cache_key: list[str] | None = None,
        enable_memory_cache: bool = True,
    ) -> None:
        """Keep a reply."""
        key, reply = self.cache_key(request), json_of(value)
        self._run("INSERT OR REPLACE INTO replies (id, reply) VALUES (?, ?)", key, reply)

    def _run(self, statement: str, *values: str) -> list[Any]:
        with self._lock:
            file = replies_file()
            if file not in self._connections:
                self._connections[file] = _opened(file)
            connection = self._connections[file]
            try:
                return connection.execute(statement, values).fetchall() if connection else []
            except sqlite3.Error as error:
                self._connections[file] = None
                _say(file, error)
                return []

    def __deepcopy__(self, memo: dict[int, Any]) -> ReplyCache:
        return self


def json_of(reply: Any) -> str:
    """A reply as it is kept, whichever of DSPy's clients it comes from."""
    return json.dumps(reply if isinstance(reply, dict) else reply.model_dump())  # LiteLLM's are pydantic's


def _opened(file: Path) -> sqlite3.Connection | None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.parent.chmod(0o700)
        connection = sqlite3.connect(file, timeout=10, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(_TABLE)
        connection.execute(_TRIM, (MOST,))
    except (OSError, sqlite3.Error) as error:
        _say(file, error)
        return None
    return connection


def _say(file: Path, error: Exception) -> None:
    logger.warning("LM replies are not kept: %s cannot be used (%s)", file, error)


def _address_of(model: str) -> str:
    """Where LiteLLM looks for a provider's server if no address is given."""
    provider = model.partition("/")[0].upper()
    return os.environ.get(f"{provider}_API_BASE") or os.environ.get(f"{provider}_BASE_URL") or ""
