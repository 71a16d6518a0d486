"""Locks, which keep other processes out of a place; the system releases those of a killed process."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, ReadWriteLock, Timeout

from typedrag.core.errors import InputError

_PATIENCE = 0.3
"""Seconds to wait for a process that only looks whether a place is in use, or is about to leave it."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made if need be. A folder that stays empty is removed again."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _hold(folder / ".lock", folder):
            yield
    finally:
        with suppress(OSError):  # the folder is not empty
            folder.rmdir()


def lock_file(file: Path) -> AbstractContextManager[None]:
    """Keep out other processes that would write the same file."""
    return _hold(file.with_name(f".{file.name}.lock"), file)


def wait_for_lock(file: Path, on_wait: Callable[[], None] = lambda: None) -> AbstractContextManager[None]:
    """Wait until no other process makes the same file; `on_wait` is called once if there is something to wait for."""
    return _hold(file.with_name(f".{file.name}.lock"), file, on_wait)


@contextmanager
def join_workers(folder: Path) -> Iterator[bool]:
    """Work in a folder beside other processes; yields True if no other one did when this began."""
    lock = ReadWriteLock(folder / ".workers.lock", is_singleton=False)
    try:
        with lock.write_lock(blocking=False):
            is_alone = True
    except Timeout:
        is_alone = False
    with lock.read_lock():
        yield is_alone


def is_locked(folder: Path) -> bool:
    """True if another process holds the lock of a folder at this moment."""
    file = folder / ".lock"
    if not file.exists():
        return False
    lock = FileLock(file, blocking=False)
    try:
        lock.acquire()
    except Timeout:
        return True
    except OSError:  # another user's lock, which cannot be tested
        return False
    lock.release()
    return False


@contextmanager
def _hold(file: Path, place: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock; without `on_wait` nobody waits long for it."""
    lock = FileLock(file)
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout:
        if on_wait is None:
            raise InputError(f"another process is writing {place}", "Wait for it, or name another --out") from None
        on_wait()
        lock.acquire()
    try:
        yield
    finally:
        with suppress(OSError):  # a FileLock that waited for this file notices that it is gone
            file.unlink()
        lock.release()
