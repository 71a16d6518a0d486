"""Tables that threads, processes and machines share: in an SQLite file, or in a PostgreSQL database."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from typedrag.core.errors import InputError, StorageFull, first_line

if TYPE_CHECKING:
    from sqlalchemy import Engine

_BUSY_SECONDS = 60.0
"""Seconds to wait for other processes' writes."""


class Tables(Protocol):
    """Tables of a database, in this process or behind another."""

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        ...

    def close(self) -> None:
        """Leave the database."""
        ...


class SQLite:
    """Tables in an SQLite file; a kill loses nothing.

    Args:
        path: The file, made with its folder if need be; None keeps the tables in memory.
        holds: The kind of contents, for messages.
        statements: Run first, such as those that make the tables.
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
                self._open().execute(statement)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{holds} cannot be kept in {path}: {error}", "Name another file") from None

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """See `Tables`."""
        with self._lock:
            try:
                return self._open().execute(statement, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise StorageFull(f"{self._holds} cannot be kept in {self._path}: {error}", "Make room") from error

    def close(self) -> None:
        """Close the file; a later `run` opens it again."""
        with self._lock:
            if self._connection:
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            file = self._path or ":memory:"
            self._connection = sqlite3.connect(file, _BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")  # no statement waits for the disk
        return self._connection


class PostgreSQL:
    """Tables in a PostgreSQL database."""

    def __init__(self, url: str, holds: str, *statements: str) -> None:
        from sqlalchemy import create_engine
        from sqlalchemy.exc import SQLAlchemyError

        self._holds = holds
        self._engine = create_engine(url, isolation_level="AUTOCOMMIT", pool_size=32, pool_pre_ping=True)
        try:
            with lock_database(self._engine):
                for statement in statements:
                    self.run(statement)
        except (SQLAlchemyError, StorageFull) as error:
            raise InputError(f"{holds} cannot be kept: {first_line(error)}", "Name another folder or storage") from None

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """See `Tables`."""
        from sqlalchemy import text
        from sqlalchemy.exc import OperationalError

        try:
            with self._engine.connect() as connection:
                done = connection.execute(text(statement), values)
                return [tuple(row) for row in done] if done.returns_rows else []
        except OperationalError as error:
            raise StorageFull(f"{self._holds} cannot be kept: {first_line(error)}", "Make room") from error

    def close(self) -> None:
        """See `Tables`."""
        self._engine.dispose()


@contextmanager
def lock_database(engine: Engine) -> Iterator[None]:
    """Keep other workers out by a lock of PostgreSQL, which is released when a worker's connection ends."""
    from sqlalchemy import text

    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(hashtext('typedrag sweep'))"))
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(hashtext('typedrag sweep'))"))
