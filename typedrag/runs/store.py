"""The store of a run: one SQLite file with the results of each step on each item, and what they cost.

A process that is killed at any moment loses work under way, but no result that was added.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typedrag.core.errors import InputError, StorageFull
from typedrag.lms.cost import Spending

FORMAT = 2
KIND = "kind"
_FORGOTTEN = "spent on what was made again"
_TABLES = (
    "CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE items (position INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, value TEXT NOT NULL)",
    "CREATE TABLE results (item TEXT NOT NULL, step TEXT NOT NULL, value TEXT NOT NULL, problem TEXT NOT NULL,"
    " skipped INTEGER NOT NULL, spent TEXT NOT NULL, PRIMARY KEY (item, step))",
    f"PRAGMA user_version = {FORMAT}",
)


@dataclass(frozen=True)
class Result:
    """The result of a step on an item: a JSON value, or the problem why there is none; `skipped` if the item lacks what
    the step needs, which is no failure. Failed calls are among what was `spent`."""

    item: str
    step: str
    value: Any = None
    problem: str = ""
    skipped: bool = False
    spent: Spending = field(default_factory=Spending)

    @property
    def failed(self) -> bool:
        return bool(self.problem) and not self.skipped


@dataclass(frozen=True)
class Contents:
    """The contents of a store at a moment: results in the order in which they were added, planned items by id, and what
    the failures have cost that were removed to be made again."""

    kind: str
    identity: Mapping[str, Any]
    notes: Mapping[str, Any]
    items: Mapping[str, Any]
    results: tuple[Result, ...]
    forgotten: Spending

    @property
    def spent(self) -> Spending:
        return sum((result.spent for result in self.results), self.forgotten)


class Store:
    """The results of a run in the making. Threads share it; other processes may read it, but not write.

    Results are on disk when `add` returns, and none can be added twice.

    Args:
        file: The file, made if need be; None keeps them in memory.
        redact: Removes from all texts what must not be kept, such as keys in the errors of servers.
        durable: Wait for the disk each time. Without it, a kill still loses nothing, but a power failure may lose
            the last additions.
    """

    def __init__(self, file: Path | None = None, *, redact: Callable[[str], str] = str, durable: bool = True) -> None:
        self.file, self._redact = file, redact
        self._lock = threading.RLock()
        self._database = sqlite3.connect(file or ":memory:", check_same_thread=False, isolation_level=None)
        try:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with self.transaction() as database:
                if database.execute("SELECT name FROM sqlite_master").fetchone():
                    _check_format(database, file)
                else:
                    for statement in _TABLES:
                        database.execute(statement)
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise InputError(f"{file} is no run ({error})", "Name another --out") from None
        except BaseException:
            self._database.close()
            raise

    def add(self, result: Result) -> None:
        texts = map(self._redact, (_json(result.value), result.problem))
        row = (result.item, result.step, *texts, result.skipped, _json(result.spent.to_dict()))
        with self.transaction() as database:
            database.execute("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?)", row)

    def plan(self, items: Mapping[str, Any]) -> None:
        with self.transaction() as database:
            (held,) = database.execute("SELECT COUNT(*) FROM items").fetchone()
            rows = [(place, id_, _json(value)) for place, (id_, value) in enumerate(items.items())]
            database.executemany("INSERT INTO items VALUES (?, ?, ?)", rows[held:])

    def identify(self, settings: Mapping[str, Any]) -> None:
        with self.transaction() as database:
            rows = [(name, _json(value)) for name, value in settings.items()]
            database.executemany("INSERT INTO identity VALUES (?, ?)", rows)

    def note(self, name: str, value: Any) -> None:
        with self.transaction() as database:
            database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, _json(value)))

    def forget_failures(self) -> int:
        """Remove failed results, whose costs still count, and return their number."""
        with self.transaction() as database:
            failed = database.execute("DELETE FROM results WHERE problem != '' AND NOT skipped RETURNING spent")
            costs = [Spending.from_dict(json.loads(spent)) for (spent,) in failed.fetchall()]
            if costs:
                self.note(_FORGOTTEN, sum(costs, self.read().forgotten).to_dict())
        return len(costs)

    def read(self) -> Contents:
        with self._lock:
            return _contents(self._database)

    def close(self) -> None:
        """Leave a single file."""
        with self._lock:
            with suppress(sqlite3.DatabaseError):  # a reader may be using the log
                self._database.execute("PRAGMA journal_mode = DELETE")
            self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Make all changes within, or none; a transaction within another is part of it."""
        with self._lock:
            if self._database.in_transaction:
                yield self._database
                return
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield self._database
                self._database.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.OperationalError):  # SQLite may have rolled back by itself
                    self._database.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    hint = "Make room; what was done until then is kept: go on with --resume"
                    raise StorageFull(f"{self.file} cannot be written: {error}", hint) from error
                raise


def read_contents(file: Path, how: str) -> Contents:
    """The contents of a store's file, which others may be writing, opened as SQLite's URI parameters `how` say."""
    database = sqlite3.connect(f"{file.resolve().as_uri()}?{how}", uri=True, timeout=30, isolation_level=None)
    try:
        _check_format(database, file)
        database.execute("BEGIN")  # one state of all tables
        return _contents(database)
    finally:
        database.close()


def _contents(database: sqlite3.Connection) -> Contents:
    def pairs(columns: str) -> dict[str, Any]:
        return {name: json.loads(value) for name, value in database.execute(f"SELECT {columns}").fetchall()}

    identity, notes = pairs("name, value FROM identity"), pairs("name, value FROM notes")
    rows = database.execute("SELECT item, step, value, problem, skipped, spent FROM results ORDER BY rowid")
    return Contents(
        kind=identity.pop(KIND, ""),
        identity=identity,
        forgotten=Spending.from_dict(notes.pop(_FORGOTTEN)) if _FORGOTTEN in notes else Spending(),
        notes=notes,
        items=pairs("id, value FROM items ORDER BY position"),
        results=tuple(
            Result(item, step, json.loads(value), problem, bool(skipped), Spending.from_dict(json.loads(spent)))
            for item, step, value, problem, skipped, spent in rows
        ),
    )


def _check_format(database: sqlite3.Connection, file: Path | None) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == 0:
        raise InputError(f"{file} is no run", "Name another folder")
    if version != FORMAT:
        raise InputError(
            f"{file} is a run of format {version}; this typedrag reads {FORMAT}", "Use the version it was made with"
        )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
