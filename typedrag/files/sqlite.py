"""SQLite files that threads and processes share and that survive a kill."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any, Protocol

from typedrag.errors import InputError, StorageFull

_PATIENCE = 60.0
"""Seconds to wait for other processes' writes."""


class Tables(Protocol):
    """Tables of a database, in this process or behind another."""

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        ...

    def close(self) -> None:
        """Leave the database."""
        ...


class SQLiteFile:
    """Tables in an SQLite file; a kill loses nothing.

    Args:
        path: The file, made with its folder if need be; None keeps the tables in memory.
        holds: The kind of contents, for messages.
        statements: Run first, such as those that make the tables.

    Raises:
        InputError: If the file cannot be used.
    """

    def __init__(self, path: Path | None, holds: str, *statements: str) -> None:
        self._path = path
        self._holds = holds
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        try:
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
            for statement in statements:
                self._opened().execute(statement)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{holds} cannot be kept in {path}: {error}", "Name another file") from None

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows.

        Raises:
            StorageFull: If they cannot be read or written.
        """
        with self._lock:
            try:
                return self._opened().execute(statement, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise StorageFull(f"{self._holds} cannot be kept in {self._path}: {error}", "Make room") from error

    def close(self) -> None:
        """Close the file; a later `run` opens it again."""
        with self._lock:
            if self._connection:
                self._connection.close()
                self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            file = self._path or ":memory:"
            self._connection = sqlite3.connect(file, _PATIENCE, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")  # no statement waits for the disk
        return self._connection
