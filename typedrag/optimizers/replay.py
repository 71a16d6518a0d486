"""Replies of LMs, kept in the compile's own folder, so that a compile which was killed goes on for free.

A compile is resumed by doing it again: the same seed asks the same in the same order, and what was
answered before is answered from here.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dspy
from dspy.clients.cache import Cache

from typedrag.errors import InputError
from typedrag.optimizers.budget import current_call


class ReplayCache(Cache):
    """DSPy's cache in one file, as JSON, that lets no call pass which the budget does not allow.

    DSPy's own file cache holds pickles. Identical calls of several threads at once are made once:
    otherwise how often the LM is asked would depend on which thread is faster, and DSPy starts
    whatever takes two minutes again.

    Args:
        file: An SQLite file, made if need be.

    Raises:
        InputError: If the file is something else.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(enable_disk_cache=False, enable_memory_cache=True, disk_cache_dir=None)
        self._reading = threading.Lock()
        try:
            self._database = sqlite3.connect(file, check_same_thread=False, timeout=60, isolation_level=None)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")  # a kill loses nothing, and no call waits for the disk
            self._database.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)")
        except sqlite3.DatabaseError as error:
            raise InputError(f"{file} holds no replies ({error})", "Compile into another folder") from None

    def get(self, request: dict[str, Any], ignored_args_for_cache_key: list[str] | None = None) -> Any:
        """The reply; None if the call is to be made.

        Raises:
            Stopped: If it is to be made and may not be.
        """
        call = current_call.get()
        key = self.cache_key(request, ignored_args_for_cache_key)
        while True:
            found = super().get(request, ignored_args_for_cache_key) or self._stored(key)
            if found is not None or call is None or call.gate.pay(call, key, request.get("n") or 1):
                return found

    def put(
        self,
        request: dict[str, Any],
        value: Any,
        ignored_args_for_cache_key: list[str] | None = None,
        enable_memory_cache: bool = True,
    ) -> None:
        """Keep a reply."""
        super().put(request, value, ignored_args_for_cache_key, enable_memory_cache)
        reply = value if isinstance(value, dict) else value.model_dump()  # LiteLLM's are pydantic's
        key = self.cache_key(request, ignored_args_for_cache_key)
        with self._reading:
            self._database.execute(
                "INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, json.dumps(reply, ensure_ascii=False))
            )

    def close(self) -> None:
        """Close the file."""
        with self._reading:
            self._database.close()

    def _stored(self, key: str) -> Any:
        with self._reading:
            row = self._database.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None


_one_at_a_time = threading.Lock()


@contextmanager
def replaying(file: Path) -> Iterator[None]:
    """Keep and replay within what LMs reply. DSPy has one cache a process: one compile at a time.

    Raises:
        InputError: If there is another, or the file holds no replies.
    """
    if not _one_at_a_time.acquire(blocking=False):
        raise InputError("another compile is under way in this process", "Compile in another process")
    try:
        with _in_place_of_dspys(file):
            yield
    finally:
        _one_at_a_time.release()


@contextmanager
def _in_place_of_dspys(file: Path) -> Iterator[None]:
    before = vars(dspy).get("cache")  # DSPy makes its own only where it is asked for
    dspy.cache = replayed = ReplayCache(file)
    try:
        yield
    finally:
        if before is None:
            del dspy.cache
        else:
            dspy.cache = before
        replayed.close()
