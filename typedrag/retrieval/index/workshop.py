"""A workshop: a folder in which an index is built or added to, while the existing one can still be searched.

An index is built in its folder's `building/` and added to in `adding/`. Once all parts are made, that
folder is renamed to `next/`. From this moment on the new parts count, and they are moved to the places of
the old ones. A process killed at any moment leaves an index that can be searched as it was before or as it
is after, and the work done so far.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel

from typedrag.errors import InputError, RetrievalError, unusable
from typedrag.files.locks import alone_in, is_worked_in

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Work = Literal["building", "adding"]

BUILDING, ADDING, _NEXT, _OLD = "building", "adding", "next", "old"
MANIFEST, PROGRESS, LUCENE, DENSE = "manifest.json", "progress.json", "lucene", "dense"
BM25_PARTS = (MANIFEST, LUCENE)
PARTS = (*BM25_PARTS, DENSE)
_GONE = ".gone"


@contextmanager
def workshop(
    index: Path, work: Work, *, keep: Collection[str] = (), resume: bool = False, force: bool = False
) -> Iterator[Path]:
    """A folder to make an index in; if all goes well, its parts then replace those of the index.

    Nobody else can work on the index within. After an error the work is left to be continued, unless nothing
    was made or `discard` was called.

    Args:
        index: Folder of the index; a folder that is a workshop itself is yielded unchanged.
        work: The kind of work.
        keep: Parts of the index to begin with.
        resume: Begin with the parts of an unfinished workshop.
        force: Give up unfinished work of others.

    Raises:
        InputError: If another process is at work on it, or something begun is neither to be
            continued nor given up.
    """
    if is_workshop(index):
        yield index
        return
    with ExitStack() as stack:
        folder = index / work
        try:
            stack.enter_context(alone_in(index))
            settle(index, locked=True)
            check_begun(index, work, resume=resume, force=force)
            fresh = not (resume and folder.is_dir())
            if fresh:
                for name in (BUILDING, ADDING):
                    shutil.rmtree(index / name, ignore_errors=True)
                _begin(index, folder, keep)
        except OSError as error:
            raise unusable(index, error) from error
        before = _made(folder)
        try:
            yield folder
        except BaseException:
            if fresh and _made(folder) == before:  # there is nothing to continue
                discard(folder)
            raise
        _publish(index, folder)


def read_manifest_file(path: Path, kind: type[M], newest: int, what: str, mend: str) -> M:
    """The contents of a manifest's file.

    Raises:
        RetrievalError: If it cannot be read or its format is newer.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > newest:
            raise RetrievalError(f"{what} is of a newer format ({data['format']})", "Update typedrag")
        return kind.model_validate(data)
    except (OSError, ValueError) as error:
        raise RetrievalError(f"the manifest of {what} cannot be read", mend) from error


def is_workshop(folder: Path) -> bool:
    """True if a folder is a workshop of the index that it lies in."""
    return folder.name in (BUILDING, ADDING)


def index_of(folder: Path) -> Path:
    """The index of a workshop; any other folder itself."""
    return folder.parent if is_workshop(folder) else folder


def discard(folder: Path) -> None:
    """Delete a workshop."""
    if is_workshop(folder):
        shutil.rmtree(folder, ignore_errors=True)


def begun(index: Path) -> Work | None:
    """The kind of work that was begun on an index and not finished; None if there is none."""
    if (index / ADDING).is_dir():
        return "adding"
    return "building" if (index / BUILDING).is_dir() else None


def check_begun(index: Path, work: Work, *, resume: bool, force: bool) -> None:
    """Refuse to begin where unfinished work is neither to be continued nor given up.

    Raises:
        InputError: If there is such work.
    """
    left = begun(index)
    if left is None or force or is_workshop(index) or (resume and left == work):
        return
    what, command = ("an addition to", "append") if left == "adding" else ("a build of", "build")
    mend = "Continue it with --resume" if left == work else f"Continue it with: typedrag index {command} … --resume"
    raise InputError(f"{what} index {index} was begun and not finished", f"{mend}, or give it up with --force")


def refusal(index: Path) -> RetrievalError | None:
    """The error for searching an index without parts that is still being built; None if none is."""
    if begun(index) is None:
        return None
    if is_worked_in(index):
        return RetrievalError(f"index {index} is being built by another process", "Wait for it")
    what, command = ("an addition to", "append") if begun(index) == "adding" else ("the build of", "build")
    return RetrievalError(
        f"{what} index {index} did not finish",
        f"Continue it with: typedrag index {command} SOURCE… --out DIR --resume",
    )


def opened(index: Path, opening: Callable[[], T]) -> T:
    """The result of opening an index, all of it from one moment.

    Args:
        index: Folder of the index.
        opening: Opens the index; called again if parts changed places meanwhile.

    Raises:
        RetrievalError: If `opening` raises it.
    """
    while True:
        settle(index)
        before = _state(index)
        try:
            result = opening()
        except (RetrievalError, OSError):
            if _state(index) == before:
                raise
        else:
            if _state(index) == before:
                return result


def settle(index: Path, *, locked: bool = False) -> None:
    """Move finished parts to their places, if a process was killed before it had done so or is at it now.

    Args:
        index: Folder of the index.
        locked: True if the caller holds the index's lock.

    Raises:
        RetrievalError: If the parts cannot be moved.
    """
    if not (index / _NEXT).is_dir():
        return
    try:
        if not locked:
            with alone_in(index):
                settle(index, locked=True)
            return
        old = index / _OLD
        shutil.rmtree(old, ignore_errors=True)
        old.mkdir()
        for part in sorted((index / _NEXT).iterdir()):
            place = index / part.name.removesuffix(_GONE)
            if place.exists():
                place.rename(old / place.name)
            if part.name.endswith(_GONE):
                part.unlink()
            else:
                part.rename(place)
        (index / _NEXT).rmdir()
        shutil.rmtree(old, ignore_errors=True)
    except InputError:  # another process is at it and will be done in a moment
        return
    except OSError as error:
        raise RetrievalError(
            f"the new parts of index {index} are not yet in their places: {error}",
            "Search it once where its folder can be written to",
        ) from error


def _begin(index: Path, folder: Path, keep: Collection[str]) -> None:
    """Make a workshop with parts of the index; links are enough, as no file is changed once it counts."""
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    for name in keep:
        if (index / name).is_dir():
            ignored = shutil.ignore_patterns("write.lock")
            shutil.copytree(index / name, part / name, copy_function=_link, ignore=ignored)
        elif (index / name).exists():
            shutil.copy2(index / name, part / name)
    part.rename(folder)


def _publish(index: Path, folder: Path) -> None:
    if (folder / PROGRESS).exists():
        raise RetrievalError(f"index {index} holds a build that did not finish", "Continue it with --resume")
    for name in PARTS:
        if (index / name).exists() and not (folder / name).exists():
            (folder / f"{name}{_GONE}").touch()
    folder.rename(index / _NEXT)
    settle(index, locked=True)


def _made(folder: Path) -> dict[Path, int]:
    """The files of a workshop with contents of passages, and their sizes."""
    files = (file for name in (LUCENE, DENSE) for file in (folder / name).glob("*") if file.name != MANIFEST)
    return {file: size for file in files if (size := file.stat().st_size)}


def _state(index: Path) -> tuple[bytes | None, ...]:
    """A state of an index that changes whenever parts change places."""

    def content(file: Path) -> bytes | None:
        try:
            return file.read_bytes()
        except OSError:
            return None

    moving = b"" if (index / _NEXT).is_dir() else None
    return moving, content(index / MANIFEST), content(index / DENSE / MANIFEST)


def _link(file: str, link: str) -> None:
    try:
        os.link(file, link)
    except OSError:  # not every file system has links
        shutil.copy2(file, link)
