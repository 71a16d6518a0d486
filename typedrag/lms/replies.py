"""The store of LM replies: the user's cache, and the replies that the programs, trials and candidates of a run share.

A reply is kept by content: the whole request, all settings, and the LM that was configured. Programs, trials and
candidates send the same prompt wherever question and passages come out the same, and then share one reply. An LM server
that batches calls does not give the same reply twice, even at temperature 0, and such chance is no difference between
programs. A killed run is resumed by starting it again: its replies so far are found here.

It stands in the place of DSPy's cache, whose pickles run planted code, in a folder that all may read.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dspy
from dspy.clients.cache import Cache
from dspy.utils.callback import ACTIVE_CALL_ID, BaseCallback

from typedrag.core.call_context import call_context, use_context
from typedrag.core.errors import StepFailed, TypedRAGError
from typedrag.core.registry import NoDeepcopy
from typedrag.files.database import PostgreSQL, SQLite, Tables
from typedrag.lms.models import cache_dir
from typedrag.lms.threads import stop_if_cancelled
from typedrag.lms.trace import CallTracker, add_replay

logger = logging.getLogger(__name__)

REPLIES = "replies.sqlite"  # the name of the file that holds the replies, if a file does
HELD = "LM replies"
CAPACITY = 50_000  # replies that the user's cache holds; the oldest are dropped first. One takes some 4 KB.
TABLES = (
    "CREATE TABLE IF NOT EXISTS typedrag_replies"
    " (id VARCHAR(64) PRIMARY KEY, reply TEXT NOT NULL, seconds DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS typedrag_leases"
    " (id VARCHAR(64) PRIMARY KEY, worker VARCHAR(32) NOT NULL, until DOUBLE PRECISION NOT NULL)",
)
"""The statements that make the tables."""
_FIND = "SELECT reply, seconds FROM typedrag_replies WHERE id = :id"
_KEEP = "INSERT INTO typedrag_replies VALUES (:id, :reply, :seconds) ON CONFLICT (id) DO NOTHING"
_FORGET = "DELETE FROM typedrag_replies WHERE id = :id"
_TRIM = "DELETE FROM typedrag_replies WHERE rowid <= (SELECT MAX(rowid) FROM typedrag_replies) - :capacity"
_LEASE = (
    "INSERT INTO typedrag_leases VALUES (:id, :worker, :until)"
    " ON CONFLICT (id) DO UPDATE SET worker = excluded.worker, until = excluded.until"
    " WHERE typedrag_leases.until < :now RETURNING id"
)
_RENEW = "UPDATE typedrag_leases SET until = :until WHERE id = :id AND worker = :worker"
_RELEASE = "DELETE FROM typedrag_leases WHERE id = :id AND worker = :worker"
RELEASE_ALL = "DELETE FROM typedrag_leases WHERE worker = :worker"
"""The statement that gives up all leases of a worker, such as one that is lost."""
_MISSED_BEATS = 3
_LOOK_AGAIN = 0.02  # seconds between two looks at the lease of another worker
_WAIT = 0.5  # seconds between two looks at whether a call of another thread is still waited for
SOURCE = "typedrag_source"
"""The attribute of an LM with what tells it from others of its model's name: its spec, addresses and options."""
_NO_PART_OF_KEY = ["api_key", "api_base", "base_url", "timeout"]


def lm_source(lm: Any) -> Any:
    """The `SOURCE` of an LM; of one that `open_lm` did not open, its address."""
    return getattr(lm, SOURCE, None) or lm_address(lm.model, lm.kwargs)


def lm_address(model: str, settings: Mapping[str, Any]) -> str:
    """The address of an LM as a key holds it: its own, else where LiteLLM looks for its provider's; empty for none.

    Example:
        >>> lm_address("openai/x", {"api_base": "http://b:8000/v1/"})
        'http://b:8000/v1'
    """
    provider = model.partition("/")[0].upper()
    names = (f"{provider}_API_BASE", f"{provider}_BASE_URL")
    own = settings.get("api_base") or settings.get("base_url")
    return str(own or next(filter(None, map(os.environ.get, names)), "")).strip().rstrip("/")


@dataclass
class _Call:
    """An LM call under way, and the key of its reply."""

    source: Any
    in_loop: bool
    """True in an event loop, where waiting for another call would hold the threads that its reply needs."""
    key: str = ""
    began: float = 0.0
    """When it was found to have no reply."""
    release: Callable[[], None] | None = None
    """Gives up the claim to make the call; None while there is no claim."""

    def end(self) -> None:
        release, self.release = self.release, None
        if release is not None:
            release()


_calls: dict[str, _Call] = {}  # the calls under way of LMs with `CALL_OBSERVER`, by DSPy's id


class _CallObserver(NoDeepcopy, BaseCallback):
    """Tells the store whose call it is asked about, and when the call has ended, well or not."""

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        _calls[call_id] = _Call(lm_source(instance), in_event_loop())

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        if (call := _calls.pop(call_id, None)) is not None:
            call.end()


CALL_OBSERVER = _CallObserver()  # a callback of each LM that `open_lm` opens


def in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class ReplyStore(NoDeepcopy, Cache):
    """DSPy's cache in tables of JSON. A call that threads make at the same time is made once: the others wait for it.

    If it is `of_run`, a kept reply counts with the calls, tokens and seconds that it first took, so that the costs of a
    program are the same whoever asked first; nothing is spent on it. It holds `capacity` replies, by default all; other
    workers share its tables by `leases`. If it can `keep_unreadable` replies, a replay fails as before.
    """

    def __init__(
        self,
        tables: Tables,
        *,
        of_run: bool,
        capacity: int | None = None,
        leases: Leases | None = None,
        keep_unreadable: bool = False,
    ) -> None:
        super().__init__(enable_disk_cache=False, enable_memory_cache=False, disk_cache_dir=None)
        self.of_run, self.keep_unreadable = of_run, keep_unreadable
        self._tables, self._capacity, self._leases = tables, capacity, leases
        self._under_way: dict[str, threading.Event] = {}
        self._added = 0

    def cache_key(self, request: dict[str, Any], *_: Any, **__: Any) -> str:
        call = _calls.get(ACTIVE_CALL_ID.get() or "")
        source = call.source if call else lm_address(str(request.get("model", "")), request)
        return super().cache_key({**request, "_source": source}, _NO_PART_OF_KEY)

    def get(self, request: dict[str, Any], *_: Any, **__: Any) -> Any:
        key, call = self.cache_key(request), _calls.get(ACTIVE_CALL_ID.get() or "")
        if call is not None:
            call.key = key
        fresh = call_context().fresh
        row = None if fresh else self._find(key)
        while row is None and not fresh and call and not call.in_loop and call.release is None:
            stop_if_cancelled()
            call.release = self._claim(key)
            row = self._find(key)  # it may have come in between
        if row is not None:
            reply, seconds = row
            if call is not None:
                call.end()
            tracker = dspy.settings.usage_tracker
            if self.of_run:
                add_replay(seconds)
                if tracker:
                    tracker.add_usage(str(request.get("model", "")), dict(reply.get("usage") or {}))
            if isinstance(tracker, CallTracker) and (responses := reply.get("responses")):
                tracker.finish_reason = responses[-1].get("finish_reason")
            if (used := call_context().replies) is not None:
                used.append(key)
            return reply
        if (permit := call_context().permit) is not None:
            permit(request.get("n") or 1)
        if call is not None:
            call.began = time.perf_counter()
        return None

    def put(self, request: dict[str, Any], value: Any, *_: Any, **__: Any) -> None:
        call = _calls.get(ACTIVE_CALL_ID.get() or "")
        seconds = time.perf_counter() - call.began if call else 0.0
        reply = value if isinstance(value, dict) else value.model_dump()  # LiteLLM's are pydantic's
        key = self.cache_key(request)
        self._tables.run(_KEEP, id=key, reply=json.dumps(reply), seconds=seconds)
        if (used := call_context().replies) is not None:
            used.append(key)
        if call is not None:
            call.end()
        if self._capacity is not None:
            if self._added % max(1, self._capacity // 50) == 0:
                self._tables.run(_TRIM, capacity=self._capacity)
            self._added += 1

    def forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._tables.run(_FORGET, id=key)

    def close(self) -> None:
        """Close the tables. Calls that were interrupted are left to whoever asks next."""
        if self._leases is not None:
            self._leases.close()
        self._tables.close()

    def _find(self, key: str) -> tuple[dict[str, Any], float] | None:
        rows = self._tables.run(_FIND, id=key)
        with suppress(ValueError):
            return (json.loads(rows[0][0]), float(rows[0][1])) if rows else None
        return None

    def _claim(self, key: str) -> Callable[[], None] | None:
        """Claim a call; None, after a wait, if another makes it."""
        with self._lock:
            other = self._under_way.get(key)
            if other is None:
                self._under_way[key] = threading.Event()
        if other is not None:
            other.wait(_WAIT)
            return None
        try:
            if self._leases is None or self._leases.take(key):
                return partial(self._end, key, release=True)
        except BaseException:
            self._end(key)
            raise
        self._end(key)
        time.sleep(_LOOK_AGAIN)
        return None

    def _end(self, key: str, *, release: bool = False) -> None:
        with self._lock:
            self._under_way.pop(key).set()
        if release and self._leases is not None:
            self._leases.release(key)


class Leases:
    """Claims of calls in tables that several workers share. Those of a lost worker lapse after three heartbeats, which
    come every `heartbeat` seconds."""

    def __init__(self, tables: Tables, heartbeat: float, worker: str = "") -> None:
        self._tables, self._heartbeat, self._lapse = tables, heartbeat, _MISSED_BEATS * heartbeat
        self._worker = worker or uuid.uuid4().hex
        self._held = set[str]()  # a lease that is not known here, as its answer was lost, must lapse
        self._closed = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def take(self, key: str) -> bool:
        now = time.time()
        rows = self._tables.run(_LEASE, id=key, worker=self._worker, until=now + self._lapse, now=now)
        if rows:
            self._held.add(key)
        return bool(rows)

    def release(self, key: str) -> None:
        self._held.discard(key)  # if the database fails at the release, the lease lapses
        self._tables.run(_RELEASE, id=key, worker=self._worker)

    def close(self) -> None:
        self._closed.set()
        self._beating.join()
        with suppress(TypedRAGError):  # they lapse by themselves
            self._tables.run(RELEASE_ALL, worker=self._worker)

    def _beat(self) -> None:
        while not self._closed.wait(self._heartbeat):
            with suppress(TypedRAGError):  # the next one may get through, before the leases lapse
                for key in self._held.copy():
                    self._tables.run(_RENEW, id=key, worker=self._worker, until=time.time() + self._lapse)


class _UserFile:
    """The file of the user's cache. If it fails, this warns once and keeps nothing."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock, self._failed = path, threading.Lock(), False
        self._file: SQLite | None = None

    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            if self._failed:
                return []
            try:
                if self._file is None:
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    self._path.parent.chmod(0o700)
                    self._file = SQLite(self._path, HELD, *TABLES)
                return self._file.run(statement, **values)
            except (OSError, TypedRAGError) as error:
                self._failed = True
                logger.warning("LM replies are not kept: %s cannot be used (%s)", self._path, error)
                return []

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def replies_file() -> Path:
    return cache_dir() / "replies" / REPLIES


def set_user_store() -> None:
    """Answer from the user's cache in this process, unless its author has set DSPy's cache otherwise."""
    if "cache" not in vars(dspy):  # DSPy makes its own only where it is asked for
        dspy.cache = ReplyStore(_UserFile(replies_file()), of_run=False, capacity=CAPACITY)


@contextmanager
def forget_unreadable() -> Iterator[None]:
    """Forget the replies that a step used within if none of them could be read, so that it asks again the next time."""
    replies: list[str] = []
    try:
        with use_context(replies=replies):
            yield
    except StepFailed:
        store = vars(dspy).get("cache")
        if isinstance(store, ReplyStore) and not store.keep_unreadable:
            store.forget(replies)
        raise


@contextmanager
def use_reply_store(
    place: Path | str | Tables, heartbeat: float | None = None, worker: str = "", *, keep_unreadable: bool = False
) -> Iterator[None]:
    """Keep the LM replies of a run within, and answer from them. Within another run, such as a sweep, its store stays:
    DSPy has one cache a process.

    Args:
        place: A file of this machine, the address of a PostgreSQL database, or tables that others share.
        heartbeat: See `Leases`; None if no other worker shares the place.
        worker: The name of this worker.
        keep_unreadable: See `ReplyStore`.
    """
    before = vars(dspy).get("cache")
    if isinstance(before, ReplyStore) and before.of_run:
        yield
        return
    if isinstance(place, Path):
        place = SQLite(place, HELD, *TABLES)
    elif isinstance(place, str):
        place = PostgreSQL(place, HELD, *TABLES)
    leases = Leases(place, heartbeat, worker) if heartbeat else None
    store = ReplyStore(place, of_run=True, leases=leases, keep_unreadable=keep_unreadable)
    dspy.cache = store
    try:
        yield
    finally:
        if before is None:
            del dspy.cache
        else:
            dspy.cache = before
        store.close()
