"""Storages of a study that workers share: a journal file on one machine, PostgreSQL across machines.

Both keep two promises. Only one worker at a time chooses a point, so that no two choose the same.
And the trial of a dead worker is detected: on one machine by its lock, which the system frees, across
machines by its missing heartbeat.
"""

from __future__ import annotations

import threading
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from optuna import Study
from optuna.exceptions import ExperimentalWarning, OptunaError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import NullPool, create_engine

from typedrag.errors import InputError, Unavailable, first_line
from typedrag.files.database import lock_database
from typedrag.lms.replies import REPLIES

JOURNAL = "study.journal"
WORKER = "worker"
"""The attribute of a trial that names the worker at work on it."""


class Storage(ABC):
    """The storage of a study.

    Attributes:
        worker: The name of this process among the workers.
        replies: The file, or the URL of the database, that LM replies are kept in.
    """

    optuna: BaseStorage
    replies: Path | str

    def __init__(self) -> None:
        self.worker = uuid.uuid4().hex[:12]

    @abstractmethod
    def alone(self) -> AbstractContextManager[Any]:
        """Keep other workers out while a point is chosen."""

    def at_work(self, trial_id: int) -> AbstractContextManager[Any]:
        """Show other workers, within the context, that the trial is being made."""
        return nullcontext()

    def abandoned(self, study: Study) -> list[FrozenTrial]:
        """The running trials whose worker is dead; call it within `alone`."""
        is_dead = self._told_dead(study)
        return list(filter(is_dead, study.get_trials(deepcopy=False, states=[TrialState.RUNNING])))

    @abstractmethod
    def close(self) -> None:
        """Leave the study."""

    @abstractmethod
    def _told_dead(self, study: Study) -> Callable[[FrozenTrial], bool]:
        """Return a function that tells whether a running trial's worker is dead."""


def open_storage(url: str | None, folder: Path, heartbeat: float) -> Storage:
    """Open the storage of a study.

    Args:
        url: `postgresql://…`; None for a journal in the folder.
        folder: The sweep's folder on this machine.
        heartbeat: Seconds between two heartbeats; a worker that misses three counts as dead.

    Raises:
        InputError: If the URL names something else.
        Unavailable: If the database cannot be used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if url is None:
        return JournalFolder(folder)
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise InputError("a study's storage is a PostgreSQL database", "Write postgresql://USER@HOST/NAME, or none")
    return Database(f"postgresql+psycopg://{rest}", heartbeat)


class JournalFolder(Storage):
    """A study in a journal file, for workers on one machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.replies: Path | str = (folder / REPLIES).resolve()
        self._locks = folder / "workers"
        self._locks.mkdir(exist_ok=True)
        self._alive = self._lock(self.worker)
        self._alive.acquire()
        self._choosing = FileLock(folder / "choosing.lock")
        journal = folder / JOURNAL
        self.optuna: BaseStorage = JournalStorage(JournalFileBackend(str(journal), lock_obj=_JournalLock(str(journal))))

    def alone(self) -> AbstractContextManager[Any]:
        """See `Storage.alone`."""
        return self._choosing

    def close(self) -> None:
        """See `Storage.close`."""
        self._alive.release()
        Path(self._alive.lock_file).unlink(missing_ok=True)

    def _told_dead(self, study: Study) -> Callable[[FrozenTrial], bool]:
        return lambda trial: self._is_dead(trial.user_attrs.get(WORKER, ""))

    def _is_dead(self, worker: str) -> bool:  # a living worker holds its lock
        if worker == self.worker:
            return False
        lock = self._lock(worker)
        if not worker or not Path(lock.lock_file).exists():
            return True
        try:
            with lock.acquire(timeout=0):
                Path(lock.lock_file).unlink(missing_ok=True)
                return True
        except Timeout:
            return False

    def _lock(self, worker: str) -> FileLock:
        return FileLock(self._locks / f"{worker}.lock")


class _JournalLock(JournalFileOpenLock):
    """A lock that a kill frees; Optuna's own file stays behind, and all workers wait for 30 seconds."""

    def __init__(self, filepath: str) -> None:
        super().__init__(filepath)
        self._file_lock = FileLock(f"{filepath}.lock")

    def acquire(self) -> bool:
        self._file_lock.acquire()
        return True

    def release(self) -> None:
        self._file_lock.release()


class Database(Storage):
    """A study in PostgreSQL, for workers on several machines, which send a heartbeat every `heartbeat` seconds.

    Raises:
        Unavailable: If the database cannot be used.
    """

    def __init__(self, url: str, heartbeat: float) -> None:
        super().__init__()
        self.replies: Path | str = url
        self._seconds = max(1, round(heartbeat))
        try:
            with (
                warnings.catch_warnings(),
                lock_database(create_engine(url, poolclass=NullPool)),
            ):  # tables are made once
                warnings.simplefilter("ignore", ExperimentalWarning)
                self.optuna: BaseStorage = RDBStorage(
                    url,
                    engine_kwargs={"pool_pre_ping": True},
                    heartbeat_interval=self._seconds,
                    grace_period=3 * self._seconds,
                )
        except Exception as error:  # SQLAlchemy, psycopg and Optuna each raise their own
            raise Unavailable(f"the study's database cannot be used: {_short(error)}", "Is it running?") from None

    def alone(self) -> AbstractContextManager[Any]:
        """See `Storage.alone`: a lock of the database, freed when a dead worker's connection ends."""
        return lock_database(self._rdb.engine)

    @contextmanager
    def at_work(self, trial_id: int) -> Iterator[None]:
        """See `Storage.at_work`: heartbeats in Optuna's own table."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(self._seconds):
                self._rdb.record_heartbeat(trial_id)

        self._rdb.record_heartbeat(trial_id)
        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _told_dead(self, study: Study) -> Callable[[FrozenTrial], bool]:
        stale = set(self._rdb._get_stale_trial_ids(study._study_id))
        return lambda trial: trial._trial_id in stale or WORKER not in trial.user_attrs

    def close(self) -> None:
        """See `Storage.close`."""
        self._rdb.remove_session()
        self._rdb.engine.dispose()

    @property
    def _rdb(self) -> RDBStorage:
        assert isinstance(self.optuna, RDBStorage)
        return self.optuna


def _short(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, OptunaError) and isinstance(error.__cause__, Exception) else error
    return first_line(cause)
