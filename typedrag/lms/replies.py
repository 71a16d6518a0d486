"""LM replies, shared by content among all programs of an evaluation, all trials of a sweep and all of a compile.

Programs, trials and candidates send the same prompt wherever question and passages come out the same, and
then share one reply. An LM server that batches calls does not give the same reply twice, even at temperature 0, and
such chance is no difference between programs. A kept reply counts with the calls, tokens and seconds that it
first took, so that costs are those of the program; but nothing is spent on it.

A killed run is resumed by starting it again: its replies so far are found here.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import dspy
from dspy.clients.cache import Cache
from dspy.utils.callback import BaseCallback

from typedrag.errors import StorageFull, TypedRAGError
from typedrag.files.processes import has_ended, process_name
from typedrag.files.sqlite import SQLiteFile, Tables
from typedrag.lms.lm import PROVIDER
from typedrag.lms.reply_cache import json_of
from typedrag.lms.trail import replay
from typedrag.sharing import Shared

REPLIES = "replies.sqlite"
"""The name of the file that holds the replies, if a file does."""
_SQLITE, HELD = "sqlite:///", "LM replies"
TABLES = (
    "CREATE TABLE IF NOT EXISTS typedrag_replies"
    " (id VARCHAR(64) PRIMARY KEY, reply TEXT NOT NULL, seconds DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS typedrag_asked"
    " (id VARCHAR(64) PRIMARY KEY, worker VARCHAR(32) NOT NULL, until DOUBLE PRECISION NOT NULL)",
)
"""The statements that make the tables of replies."""
_FIND = "SELECT reply, seconds FROM typedrag_replies WHERE id = :id"
_KEEP = "INSERT INTO typedrag_replies VALUES (:id, :reply, :seconds) ON CONFLICT (id) DO NOTHING"
_CLAIM = (
    "INSERT INTO typedrag_asked VALUES (:id, :worker, :until)"
    " ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, until = excluded.until"
    " WHERE typedrag_asked.until < :now RETURNING id"
)
_HOLDER = "SELECT worker FROM typedrag_asked WHERE id = :id"
_RENEW = "UPDATE typedrag_asked SET until = :until WHERE id = :id AND worker = :worker"
_RELEASE = "DELETE FROM typedrag_asked WHERE id = :id AND worker = :worker"
RELEASE_ALL = "DELETE FROM typedrag_asked WHERE worker = :worker"
"""The statement that gives up all claims of a worker, such as one that is lost."""
_MISSED_BEATS = 3
_LOOK_AGAIN = 0.02
_LOOKS = 50
"""At one in so many looks for a reply, it is checked that the worker who makes the call still runs."""

permission: ContextVar[Callable[[int], None] | None] = ContextVar("permission", default=None)
"""Called before each new call with the number of replies it asks for; raises if the call may not be made."""
_asked: ContextVar[tuple[str, float] | None] = ContextVar("asked", default=None)
"""The key of the call that this thread is making because no reply was kept, and the time when it began."""


class Replies(Cache):
    """DSPy's cache in a database that workers share.

    A call is made once, also if several threads or workers want it at the same time: the others
    wait for its reply. The claims of a killed worker end with it on the same machine; elsewhere they lapse with its
    heartbeat.

    Args:
        place: The address of an SQLite file or a PostgreSQL database, in which tables are made if need be; or
            a database that has them.
        heartbeat: Seconds between heartbeats; a claim lapses after three without one.
        worker: A name for this worker; by default a new one.

    Raises:
        InputError: If the database cannot be used.
    """

    def __init__(self, place: str | Tables, heartbeat: float = 10.0, worker: str = "") -> None:
        super().__init__(enable_disk_cache=False, enable_memory_cache=False, disk_cache_dir=None)
        self._worker = worker or process_name()
        self._lease = _MISSED_BEATS * heartbeat
        self._database = _opened(place) if isinstance(place, str) else place
        self._held = set[str]()  # a claim that is not known here, as its answer was lost, must lapse
        self._closed = threading.Event()
        self._beating = threading.Thread(target=self._beat, args=(heartbeat,), daemon=True)
        self._beating.start()

    def cache_key(self, request: dict[str, Any], ignored_args_for_cache_key: list[str] | None = None) -> str:
        """The key of what a reply depends on: not of the time that it may take.

        For our own LMs a timeout of 600 seconds stays in the key, so that replies kept by older versions are found.
        """
        key_fields = {name: value for name, value in request.items() if name != "timeout"}
        if str(request.get("model", "")).startswith(f"{PROVIDER}/"):
            key_fields["timeout"] = 600.0
        return super().cache_key(key_fields, ignored_args_for_cache_key)

    def get(self, request: dict[str, Any], ignored_args_for_cache_key: list[str] | None = None) -> Any:
        """The reply; None if this thread is to make the call, which others then wait for.

        Raises:
            BaseException: As `permission` does.
        """
        key = self.cache_key(request, ignored_args_for_cache_key)
        looks = 0
        while True:
            if (row := self._find(key)) is not None:
                reply, seconds = row
                _count(request, reply, seconds)
                return reply
            if self._claim(key):
                if (row := self._find(key)) is None:  # it may have come in between
                    self._ask_permission(key, request)
                    self._held.add(key)
                    _asked.set((key, time.perf_counter()))
                    return None
                self._database.run(_RELEASE, id=key, worker=self._worker)
            elif looks % _LOOKS or not self._release_of_ended(key):
                time.sleep(_LOOK_AGAIN)
            looks += 1

    def put(
        self,
        request: dict[str, Any],
        value: Any,
        ignored_args_for_cache_key: list[str] | None = None,
        enable_memory_cache: bool = True,
    ) -> None:
        """Keep a reply and the seconds that it took."""
        key, began = _asked.get() or (self.cache_key(request, ignored_args_for_cache_key), time.perf_counter())
        self._database.run(_KEEP, id=key, reply=json_of(value), seconds=time.perf_counter() - began)
        self.release()

    def release(self) -> None:
        """Give up this thread's claim, if any, so that others can make the call: it has ended, well or not."""
        if (claim := _asked.get()) is not None:
            _asked.set(None)
            self._held.discard(claim[0])  # if the database fails at the release, the claim lapses
            self._database.run(_RELEASE, id=claim[0], worker=self._worker)

    def close(self) -> None:
        """Close the database. Calls that were interrupted are left to whoever asks next."""
        self._closed.set()
        self._beating.join()
        with suppress(StorageFull):  # the claims lapse by themselves
            self._database.run(RELEASE_ALL, worker=self._worker)
        self._database.close()

    def __len__(self) -> int:
        return int(self._database.run("SELECT COUNT(*) FROM typedrag_replies")[0][0])

    def _ask_permission(self, key: str, request: Mapping[str, Any]) -> None:
        if (permit := permission.get()) is None:
            return
        try:
            permit(request.get("n") or 1)
        except BaseException:
            self._database.run(_RELEASE, id=key, worker=self._worker)
            raise

    def _find(self, key: str) -> tuple[dict[str, Any], float] | None:
        rows = self._database.run(_FIND, id=key)
        return (json.loads(rows[0][0]), float(rows[0][1])) if rows else None

    def _claim(self, key: str) -> bool:
        now = time.time()
        return bool(self._database.run(_CLAIM, id=key, worker=self._worker, until=now + self._lease, now=now))

    def _release_of_ended(self, key: str) -> bool:
        """Give up all claims of the worker that makes a call, if it has ended; True if it has."""
        rows = self._database.run(_HOLDER, id=key)
        ended = bool(rows) and has_ended(str(rows[0][0]))
        if ended:
            self._database.run(RELEASE_ALL, worker=rows[0][0])
        return ended

    def _beat(self, seconds: float) -> None:
        while not self._closed.wait(seconds):
            with suppress(TypedRAGError):  # the next one may get through, before the claims lapse
                for key in self._held.copy():
                    self._database.run(_RENEW, id=key, worker=self._worker, until=time.time() + self._lease)


class _Releasing(Shared, BaseCallback):
    """Releases the claims of calls that failed: their replies never come."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        self._replies.release()


@contextmanager
def replies_kept(place: str | Tables, heartbeat: float = 10.0, worker: str = "") -> Iterator[Replies]:
    """Keep LM replies that may be cached within, and answer from them. DSPy has one cache a process: one sweep or
    evaluation at a time. See `Replies` for the arguments.

    Raises:
        InputError: If the database cannot be used.
    """
    before = vars(dspy).get("cache")  # DSPy makes its own only where it is asked for
    dspy.cache = replies = Replies(place, heartbeat, worker)
    try:
        with dspy.context(callbacks=[*dspy.settings.callbacks, _Releasing(replies)]):
            yield replies
    finally:
        if before is None:
            del dspy.cache
        else:
            dspy.cache = before
        replies.close()


@contextmanager
def replies_beside(file: Path) -> Iterator[None]:
    """Keep replies in a file and answer from them within; does nothing if they are kept already, as in a sweep.

    Raises:
        InputError: If the file cannot be used.
    """
    if isinstance(vars(dspy).get("cache"), Replies):
        yield
        return
    with replies_kept(f"{_SQLITE}{file.resolve()}"):
        yield


def _count(request: Mapping[str, Any], reply: Mapping[str, Any], seconds: float) -> None:
    replay(seconds)
    if tracker := dspy.settings.usage_tracker:
        tracker.add_usage(str(request.get("model", "")), dict(reply.get("usage") or {}))


def _opened(url: str) -> Tables:
    if url.startswith(_SQLITE):
        return SQLiteFile(Path(url.removeprefix(_SQLITE)), HELD, *TABLES)
    from typedrag.lms.postgresql import PostgreSQL

    return PostgreSQL(url, HELD, *TABLES)
