"""A run's folder: one SQLite file holds all of it, and results are written as they come.

A process that is killed at any moment loses work under way, but no finished work.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from typedrag.errors import InputError, StorageFull
from typedrag.experiments.evaluate.results import MetricResult, PlannedQuestion, QuestionResult, Run
from typedrag.lms.spending import Spending
from typedrag.question_types import QuestionType
from typedrag.records import Answer

FILE = "run.sqlite"
FORMAT = 1
METRIC = "metric "
"""The prefix of settings that may be added when a run is continued: further metrics."""
_MEND = "Make room; what was done until then is kept: go on with --resume"
_FORGOTTEN = "spent on what was made again"

ANSWERS, AGAIN = "answers", "made again"
SpendingRecords = list[tuple[str, Spending]]
"""What was spent on each answer and each judgment, with what it was: `ANSWERS` or the name of the metric; and on those
that were made again, in one."""
T = TypeVar("T")

_SPENDING = TypeAdapter(Spending)

_TABLES = (
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE questions (position INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, question TEXT NOT NULL,"
    " question_type TEXT, subset TEXT NOT NULL)",
    "CREATE TABLE answers (id TEXT PRIMARY KEY, answer TEXT, error TEXT NOT NULL, spent TEXT NOT NULL)",
    "CREATE TABLE results (id TEXT NOT NULL, metric TEXT NOT NULL, score REAL, feedback TEXT NOT NULL,"
    " measures TEXT NOT NULL, details TEXT NOT NULL, problem TEXT NOT NULL, measurable INTEGER NOT NULL,"
    " spent TEXT NOT NULL, PRIMARY KEY (id, metric))",
)


class RunStore:
    """A run in the making. Threads share it; other processes may read it, but not write.

    Additions are on disk when the call returns, and nothing can be added twice.

    Args:
        folder: The folder of the run, made if need be.
        questions: The questions to answer, in the order of reports.
        settings: The settings that its answers and judgments depend on, as JSON values.
        notes: Other facts about it, such as versions; those of its beginning are kept.
        resume: Continue the run in the folder, or begin one if there is none. A continued run may get more
            questions, after those it had, and more metrics.
        redact: Removes from all texts what must not be kept, such as keys in the errors of servers.
        durable: Wait for the disk each time. Without it, a kill still loses nothing, but a power failure may
            lose the last additions.

    Raises:
        InputError: If the folder holds a run that is not to be resumed or has other settings or questions,
            or another process is writing it.
    """

    def __init__(
        self,
        folder: Path,
        questions: Sequence[PlannedQuestion],
        settings: Mapping[str, Any],
        *,
        notes: Mapping[str, Any] | None = None,
        resume: bool = False,
        redact: Callable[[str], str] = str,
        durable: bool = True,
    ) -> None:
        self.folder = folder
        self._redact = redact
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self._guard = FileLock(folder / ".lock", blocking=False)
        try:
            self._guard.acquire()
        except Timeout:
            raise InputError(f"another process is writing {folder}", "Wait for it, or name another --out") from None
        self._database = sqlite3.connect(folder / FILE, check_same_thread=False, isolation_level=None)
        try:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with self._transaction():
                if not self._database.execute("SELECT name FROM sqlite_master").fetchone():
                    self._begin(questions, settings, notes or {})
                elif resume:
                    self._continue(questions, settings)
                else:
                    raise taken(folder)
        except sqlite3.DatabaseError as error:
            self.close()
            raise InputError(f"{folder / FILE} is no run ({error})", "Name another --out") from None
        except BaseException:
            self.close()
            raise

    def add_answer(self, question: str, answer: Answer | None, error: str, spent: Spending) -> None:
        """Add the answer to the question with this id, or the reason why there is none."""
        text = self._redact(_json(answer.to_dict())) if answer else None
        row = (question, text, self._redact(error), _text(spent))
        with self._transaction():
            self._database.execute("INSERT INTO answers VALUES (?, ?, ?, ?)", row)

    def add_result(self, question: str, metric: str, result: MetricResult, spent: Spending) -> None:
        """Add a metric's result for the question with this id."""
        texts = (result.feedback, _json(dict(result.measures)), _json(dict(result.details)), result.problem)
        row = (question, metric, result.score, *map(self._redact, texts), result.measurable, _text(spent))
        with self._transaction():
            self._database.execute("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def forget_failures(self) -> int:
        """Remove failed answers and failed results of judges, and return their number.

        Their costs still count.
        """
        failed = {"results": "problem != '' AND measurable", "answers": "answer IS NULL"}
        with self._transaction():
            forgotten = [
                _SPENDING.validate_json(spent)
                for table, those in failed.items()
                for (spent,) in self._database.execute(f"DELETE FROM {table} WHERE {those} RETURNING spent").fetchall()
            ]
            if forgotten:
                spent = sum(forgotten, _forgotten(self._database))
                self._database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (_FORGOTTEN, _text(spent)))
        return len(forgotten)

    def grow(self, questions: Sequence[PlannedQuestion]) -> None:
        """Plan more questions; `questions` begins with those that are planned already."""
        with self._transaction():
            (held,) = self._database.execute("SELECT COUNT(*) FROM questions").fetchone()
            self._plan(questions, held)

    def note(self, name: str, value: Any) -> None:
        """Note a fact about the run, in the place of an earlier value."""
        with self._transaction():
            self._database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, _json(value)))

    def read(self) -> Run:
        """Read the run so far."""
        with self._lock:
            return _read(self._database, self.folder)

    def close(self) -> None:
        """Let other processes write, and leave a single file."""
        with self._lock, suppress(sqlite3.DatabaseError):  # a reader may be using the log
            self._database.execute("PRAGMA journal_mode = DELETE")
        self._database.close()
        self._guard.release()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield
                self._database.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.OperationalError):  # SQLite may have rolled back by itself
                    self._database.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise StorageFull(f"{self.folder / FILE} cannot be written: {error}", _MEND) from error
                raise

    def _begin(
        self, questions: Sequence[PlannedQuestion], settings: Mapping[str, Any], notes: Mapping[str, Any]
    ) -> None:
        for table in _TABLES:
            self._database.execute(table)
        self._database.execute(f"PRAGMA user_version = {FORMAT}")
        self._plan(questions, 0)
        self._set(settings)
        self._database.executemany("INSERT INTO notes VALUES (?, ?)", [(n, _json(v)) for n, v in notes.items()])

    def _continue(self, questions: Sequence[PlannedQuestion], settings: Mapping[str, Any]) -> None:
        _check_format(self._database, self.folder)
        before = _values(self._database, "settings")
        if "program" in before and "answers" not in before:  # names of our programs once had hyphens
            before["program"] = before["program"].replace("-", "_")
        now = json.loads(_json(dict(settings)))
        added = {name: now[name] for name in now if name.startswith(METRIC) and name not in before}
        if changes := list(_changes(before, {name: now[name] for name in now if name not in added})):
            raise InputError(
                f"{self.folder} belongs to a run with another {' and '.join(changes)}",
                "Continue it with the same settings, or name another --out",
            )
        planned = [q.id for q in questions]
        held = [row[0] for row in self._database.execute("SELECT id FROM questions ORDER BY position")]
        if held[: len(planned)] != planned[: len(held)]:
            raise InputError(f"{self.folder} belongs to a run with other questions", "Name another --out")
        if len(planned) < len(held):
            raise InputError(
                f"{self.folder} belongs to a run with another limit ({len(held)} questions, now {len(planned)})",
                "Continue it with as many questions, or more",
            )
        self._plan(questions, len(held))
        self._set(added)

    def _plan(self, questions: Sequence[PlannedQuestion], start: int) -> None:
        rows = [(i, q.id, q.question, q.question_type, q.subset) for i, q in enumerate(questions)]
        self._database.executemany("INSERT INTO questions VALUES (?, ?, ?, ?, ?)", rows[start:])

    def _set(self, settings: Mapping[str, Any]) -> None:
        self._database.executemany("INSERT INTO settings VALUES (?, ?)", [(n, _json(v)) for n, v in settings.items()])


def taken(folder: Path) -> InputError:
    """The error for a folder that holds a run already."""
    return InputError(f"{folder} holds a run", "Continue it with --resume, or name another --out")


def read_run(folder: Path) -> Run:
    """Read the run in a folder, finished or still in the making.

    Raises:
        InputError: If the folder holds no run that can be read.
    """
    return _read_folder(folder, lambda database: _read(database, folder))


def read_records(folder: Path) -> tuple[dict[str, Any], SpendingRecords]:
    """The settings of the run that a folder holds, and what was spent on each answer and each judgment, in all tries.

    Raises:
        InputError: See `read_run`.
    """
    return _read_folder(folder, lambda database: (_values(database, "settings"), _records(database)))


def _read_folder(folder: Path, read: Callable[[sqlite3.Connection], T]) -> T:
    file = folder / FILE
    if not file.is_file():
        raise InputError(f"{folder} holds no run", "Make one: typedrag evaluate … --out FOLDER")
    try:
        return _read_file(file, "mode=ro", read)
    except sqlite3.OperationalError:  # a folder where SQLite cannot put its lock
        pass
    except sqlite3.DatabaseError as error:
        raise InputError(f"{file} is no run ({error})", "Name another folder") from None
    try:
        return _read_file(file, "immutable=1", read)
    except sqlite3.DatabaseError as error:
        raise InputError(f"{file} cannot be read ({error})", "Name another folder") from None


def spent_below(folder: Path) -> Spending:
    """The spending on all runs in a folder and below it, in all tries.

    Raises:
        InputError: See `read_run`.
    """
    return sum((read_run(file.parent).spent for file in folder.rglob(FILE)), Spending())


def is_run(folder: Path) -> bool:
    """True if a folder holds a run."""
    return (folder / FILE).is_file()


def _read_file(file: Path, how: str, read: Callable[[sqlite3.Connection], T]) -> T:
    database = sqlite3.connect(f"file:{quote(str(file.resolve()))}?{how}", uri=True, timeout=30)
    try:
        _check_format(database, file.parent)
        return read(database)
    finally:
        database.close()


def _read(database: sqlite3.Connection, folder: Path) -> Run:
    database.execute("BEGIN")  # reads one consistent state
    try:
        spent = _forgotten(database)
        results: dict[str, dict[str, MetricResult]] = {}
        columns = "id, metric, spent, score, feedback, problem, measures, details, measurable"
        for row in database.execute(f"SELECT {columns} FROM results ORDER BY rowid"):
            question, metric, spending, score, feedback, problem, measures, details, measurable = row
            took = _SPENDING.validate_json(spending)
            results.setdefault(question, {})[metric] = MetricResult(
                score, feedback, json.loads(measures), json.loads(details), problem, bool(measurable), took.usage
            )
            spent += took
        answers = {}
        for question, answer, error, spending in database.execute("SELECT id, answer, error, spent FROM answers"):
            answers[question] = (Answer.from_dict(json.loads(answer)) if answer else None, error)
            spent += _SPENDING.validate_json(spending)
        planned = database.execute("SELECT id, question, question_type, subset FROM questions ORDER BY position")
        rows = planned.fetchall()
        settings, notes = _values(database, "settings"), _values(database, "notes")
    finally:
        database.execute("ROLLBACK")
    return Run(
        name=notes.get("name") or folder.resolve().name,
        path=folder,
        settings={**notes, **settings},
        questions=tuple(
            QuestionResult(
                id_, question, QuestionType(type_) if type_ else None, subset, *answers[id_], results.get(id_, {})
            )
            for id_, question, type_, subset in rows
            if id_ in answers
        ),
        planned=len(rows),
        spent=spent,
    )


def _records(database: sqlite3.Connection) -> SpendingRecords:
    rows = database.execute("SELECT ?, spent FROM answers UNION ALL SELECT metric, spent FROM results", (ANSWERS,))
    again = _forgotten(database)
    records = [(role, _SPENDING.validate_json(spent)) for role, spent in rows]
    return records + ([(AGAIN, again)] if again.usage.lm_calls else [])


def _forgotten(database: sqlite3.Connection) -> Spending:
    """The cost of failed answers and results that were removed to be made again."""
    row = database.execute("SELECT value FROM notes WHERE name = ?", (_FORGOTTEN,)).fetchone()
    return _SPENDING.validate_json(row[0]) if row else Spending()


def _check_format(database: sqlite3.Connection, folder: Path) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == 0:
        raise InputError(f"{folder / FILE} is no run", "Name another folder")
    if version != FORMAT:
        raise InputError(
            f"{folder / FILE} is a run of format {version}; this typedrag reads {FORMAT}",
            "Use the version it was made with",
        )


def _changes(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield the names of the settings that differ, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in {**before, **now}:
            yield from _changes(before.get(name), now.get(name), f"{path}.{name}" if path else name)
    elif before != now:
        yield f"{path} ({_json(before)}, now {_json(now)})"


def _values(database: sqlite3.Connection, table: str) -> dict[str, Any]:
    return {name: json.loads(value) for name, value in database.execute(f"SELECT name, value FROM {table}")}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(spent: Spending) -> str:
    return _SPENDING.dump_json(spent).decode()
