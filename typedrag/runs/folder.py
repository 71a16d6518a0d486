"""The folder of a run, which one process at a time works in, and which belongs to one identity. Its store is one SQLite
file with the results of each step on each item, and what they cost.

A process that is killed at any moment loses work under way, but no result that was added.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typedrag.core.errors import InputError, StorageFull
from typedrag.files.locks import lock_folder
from typedrag.lms.cost import Spending

FILE = "run.sqlite"
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


class RunFolder:
    """The folder of a run that is open for work, until it is closed; `store` has the results in it."""

    def __init__(self, path: Path, store: Store, held: ExitStack) -> None:
        self.path, self.store, self._held = path, store, held

    @classmethod
    def open(
        cls,
        path: Path,
        identity: Mapping[str, Any],
        *,
        kind: str,
        resume: bool,
        items: Mapping[str, Any],
        additions: Collection[str] = (),
        notes: Mapping[str, Any] | None = None,
        redact: Callable[[str], str] = str,
        durable: bool = True,
    ) -> RunFolder:
        """Begin a run in a folder, or go on with the one that it holds, finished or not.

        Args:
            path: The folder, made if need be.
            identity: The settings that results depend on, as JSON values.
            kind: The kind of run, such as `evaluation`.
            resume: Go on with a run that is there. It must be of the same kind and identity.
            items: The items to work on by id, as JSON values. A resumed run may get more, after those it had.
            additions: The settings that a run may get when it resumes.
            notes: Other facts, such as versions; those of its beginning are kept.
            redact: See `Store`, as of `durable`.
        """
        now, planned = (json.loads(json.dumps(dict(values))) for values in (identity, items))  # as they come back
        with ExitStack() as held:
            held.enter_context(lock_folder(path))
            store = Store(path / FILE, redact=redact, durable=durable)
            held.callback(store.close)
            with store.transaction():
                before = store.read()
                if before.kind:
                    if not resume:
                        raise exists_error(path)
                    if before.kind != kind:
                        other = f"{path} holds a run of another kind ({before.kind}, now {kind})"
                        raise InputError(other, "Name another --out")
                    shared = {n: value for n, value in now.items() if n in before.identity or n not in additions}
                    check_identity(path, before.identity, shared)
                    held_items, all_items = list(before.items.items()), list(planned.items())
                    if held_items[: len(all_items)] != all_items[: len(held_items)]:
                        raise InputError(f"{path} belongs to a run with other questions", "Name another --out")
                    if len(all_items) < len(held_items):
                        limits = f"{len(held_items)} questions, now {len(all_items)}"
                        raise InputError(
                            f"{path} belongs to a run with another limit ({limits})",
                            "Continue it with as many questions, or more",
                        )
                else:
                    store.identify({KIND: kind})
                    for name, value in (notes or {}).items():
                        store.note(name, value)
                store.identify({name: value for name, value in now.items() if name not in before.identity})
                store.plan(planned)
            return cls(path, store, held.pop_all())

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_run(folder: Path) -> bool:
    return (folder / FILE).is_file()


def exists_error(folder: Path) -> InputError:
    return InputError(f"{folder} holds a run", "Continue it with --resume, or name another --out")


def read_folder(folder: Path) -> Contents:
    """The contents of the run that a folder holds, finished or still in the making."""
    file = folder / FILE
    if not is_run(folder):
        raise InputError(f"{folder} holds no run", "Make one: typedrag evaluate … --out FOLDER")
    try:
        try:
            return read_contents(file, "mode=ro")
        except sqlite3.OperationalError:  # a folder where SQLite cannot put its lock
            return read_contents(file, "immutable=1")
    except sqlite3.DatabaseError as error:
        raise InputError(f"{file} is no run ({error})", "Name another folder") from None


def check_identity(place: object, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with a run whose identity was another."""

    def differing(before: Any, now: Any, path: str = "") -> Iterator[str]:
        if isinstance(before, dict) and isinstance(now, dict):
            for name in {**before, **now}:
                yield from differing(before.get(name), now.get(name), f"{path}.{name}" if path else name)
        elif before != now:
            yield f"{path} ({', now '.join(json.dumps(value, ensure_ascii=False) for value in (before, now))})"

    if changes := list(differing(dict(before), dict(now))):
        raise InputError(
            f"{place} belongs to a run with another {' and '.join(changes)}",
            "Continue it with the same settings, or name another --out",
        )


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
