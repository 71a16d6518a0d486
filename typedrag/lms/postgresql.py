"""A PostgreSQL database that workers on several machines share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from typedrag.errors import InputError, StorageFull, first_line


class PostgreSQL:
    """Tables in a PostgreSQL database; see `SQLiteFile`.

    Raises:
        InputError: If the database cannot be used.
    """

    def __init__(self, url: str, holds: str, *statements: str) -> None:
        self._holds = holds
        self._engine = create_engine(url, isolation_level="AUTOCOMMIT", pool_size=32, pool_pre_ping=True)
        try:
            with locked(self._engine):
                for statement in statements:
                    self.run(statement)
        except (SQLAlchemyError, StorageFull) as error:
            raise InputError(f"{holds} cannot be kept: {first_line(error)}", "Name another folder or storage") from None

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """See `SQLiteFile.run`."""
        try:
            with self._engine.connect() as connection:
                done = connection.execute(text(statement), values)
                return [tuple(row) for row in done] if done.returns_rows else []
        except OperationalError as error:
            raise StorageFull(f"{self._holds} cannot be kept: {first_line(error)}", "Make room") from error

    def close(self) -> None:
        """See `SQLiteFile.close`."""
        self._engine.dispose()


@contextmanager
def locked(engine: Engine) -> Iterator[None]:
    """Keep other workers out by a lock of PostgreSQL, which is released when a worker's connection ends."""
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(hashtext('typedrag sweep'))"))
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(hashtext('typedrag sweep'))"))
