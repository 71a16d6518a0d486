"""A cache of LM replies for the same request to the same server, in place of DSPy's disk cache.

DSPy's holds pickles, which run planted code, in a folder that all may read. This one holds JSON, in a file of
typedrag's cache folder that only its user may open.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import dspy
from dspy.clients.cache import Cache

from typedrag.errors import TypedRAGError
from typedrag.files.sqlite import SQLiteFile
from typedrag.lms import embedded
from typedrag.lms.models import cache_dir
from typedrag.lms.vllm import started
from typedrag.sharing import Shared

logger = logging.getLogger(__name__)

MOST = 50_000
"""Replies kept at most; the oldest are dropped first. One takes some 4 KB."""
_TABLE = "CREATE TABLE IF NOT EXISTS replies (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, reply TEXT NOT NULL)"
_KEEP = "INSERT OR REPLACE INTO replies (id, reply) VALUES (:id, :reply)"
_TRIM = "DELETE FROM replies WHERE number <= (SELECT MAX(number) FROM replies) - {MOST}"


def replies_file() -> Path:
    """The file of the cache: `replies/replies.sqlite` in the cache folder."""
    return cache_dir() / "replies" / "replies.sqlite"


def keep_replies() -> None:
    """Set this cache for the process, unless its author has set DSPy's cache otherwise."""
    if "cache" not in vars(dspy):  # DSPy makes its own only where it is asked for
        dspy.cache = ReplyCache()


class ReplyCache(Shared, Cache):
    """DSPy's cache in an SQLite file of JSON. If the file fails, this warns once and keeps nothing."""

    def __init__(self) -> None:
        super().__init__(enable_disk_cache=False, enable_memory_cache=False, disk_cache_dir=None)
        self._files: dict[Path, SQLiteFile | None] = {}

    def cache_key(self, request: dict[str, Any], *_: Any, **__: Any) -> str:
        """The key of all that a reply depends on, with the server that it is of; see `_server_at`."""
        base = request.get("api_base") or request.get("base_url") or _address_of(str(request.get("model", "")))
        server = _server_at(base)
        ignored = ["api_key", "api_base", "base_url", "timeout"]
        return super().cache_key({**request, "_server": server}, ignored)

    def get(self, request: dict[str, Any], *_: Any, **__: Any) -> Any:
        """The reply; None if there is none."""
        rows = self._run("SELECT reply FROM replies WHERE id = :id", id=self.cache_key(request))
        try:
            reply = json.loads(rows[0][0]) if rows else None
        except ValueError:
            return None
        return reply if isinstance(reply, dict) else None

    def put(self, request: dict[str, Any], value: Any, *_: Any, **__: Any) -> None:
        """Keep a reply."""
        self._run(_KEEP, id=self.cache_key(request), reply=json_of(value))

    def _run(self, statement: str, **values: str) -> list[Any]:
        path = replies_file()
        with self._lock:
            try:
                if path not in self._files:
                    self._files[path] = _opened(path)
                file = self._files[path]
                return file.run(statement, **values) if file else []
            except (OSError, TypedRAGError) as error:
                self._files[path] = None
                logger.warning("LM replies are not kept: %s cannot be used (%s)", path, error)
                return []


def json_of(reply: Any) -> str:
    """A reply as JSON, whichever of DSPy's clients it comes from."""
    return json.dumps(reply if isinstance(reply, dict) else reply.model_dump())  # LiteLLM's are pydantic's


def _opened(path: Path) -> SQLiteFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    return SQLiteFile(path, "LM replies", _TABLE, _TRIM.format(MOST=MOST))


def _server_at(api_base: str) -> str | list[str] | None:
    """The mark of a server among others with a model of the same name: its address, or the options that it was started
    with here. None for an embedded LM, whose name tells, and for several servers, which are one LM."""
    if embedded.is_served_at(api_base) or "," in api_base:
        return None
    options = started.options_at(api_base)
    return api_base.rstrip("/") if options is None else options


def _address_of(model: str) -> str:
    """The address where LiteLLM looks for a provider's server if none is set."""
    provider = model.partition("/")[0].upper()
    return os.environ.get(f"{provider}_API_BASE") or os.environ.get(f"{provider}_BASE_URL") or ""
