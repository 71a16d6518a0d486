"""Where an index is made and added to, while the one that is there stays as it is and can be searched.

An index is built in its folder's `building/` and added to in `adding/`. Once all parts are made, that
folder is renamed to `next/`, which is the moment from which on they count, and they are moved to the
places of those before. A process that is killed at any moment leaves an index that can be searched
as it was before or as it is after, and what it had made so far.
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
    """A folder to make an index in, whose parts take the place of those before if all goes well.

    Nobody else can work on the index within. What an error ends is left to be continued, unless nothing
    was made or `discard` was called.

    Args:
        index: Folder of the index; one that is a workshop itself is given as it is.
        work: What is done.
        keep: Parts of the index that it begins with.
        resume: Begin with what was left by one that did not come to its end.
        force: Give up what was left by others.

    Raises:
        InputError: If another process is at work on it, or something was begun and is to be neither
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
            if fresh and _made(folder) == before:  # there is nothing to be continued
                discard(folder)
            raise
        _publish(index, folder)


def read_manifest_file(path: Path, kind: type[M], newest: int, what: str, mend: str) -> M:
    """What a manifest's file says.

    Raises:
        RetrievalError: If it cannot be read or is of a newer format.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > newest:
            raise RetrievalError(f"{what} is of a newer format ({data['format']})", "Update typedrag")
        return kind.model_validate(data)
    except (OSError, ValueError) as error:
        raise RetrievalError(f"the manifest of {what} cannot be read", mend) from error


def is_workshop(folder: Path) -> bool:
    """Whether a folder is a workshop of the index that it lies in."""
    return folder.name in (BUILDING, ADDING)


def index_of(folder: Path) -> Path:
    """The index that a folder is a workshop of, else the folder itself."""
    return folder.parent if is_workshop(folder) else folder


def discard(folder: Path) -> None:
    """Give up what a workshop holds."""
    if is_workshop(folder):
        shutil.rmtree(folder, ignore_errors=True)


def begun(index: Path) -> Work | None:
    """What was begun with an index and has not come to its end."""
    if (index / ADDING).is_dir():
        return "adding"
    return "building" if (index / BUILDING).is_dir() else None


def check_begun(index: Path, work: Work, *, resume: bool, force: bool) -> None:
    """Refuse to begin where something was begun that is to be neither continued nor given up.

    Raises:
        InputError: If so.
    """
    left = begun(index)
    if left is None or force or is_workshop(index) or (resume and left == work):
        return
    what, command = ("an addition to", "append") if left == "adding" else ("a build of", "build")
    mend = "Continue it with --resume" if left == work else f"Continue it with: typedrag index {command} … --resume"
    raise InputError(f"{what} index {index} was begun and not finished", f"{mend}, or give it up with --force")


def refusal(index: Path) -> RetrievalError | None:
    """Why an index that has no parts cannot be searched, if it is one that is being built."""
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
    """What is opened of an index, none of it of another moment than the rest.

    Args:
        index: Folder of the index.
        opening: Opens it; called again where its parts changed places meanwhile.

    Raises:
        RetrievalError: As `opening` does.
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
    """Move finished parts to their places, if a process was killed before it had done so, or does it now.

    Args:
        index: Folder of the index.
        locked: Whether the caller is alone in it.

    Raises:
        RetrievalError: If they cannot be moved.
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
    except InputError:  # who is at it will have done it in a moment
        return
    except OSError as error:
        raise RetrievalError(
            f"the new parts of index {index} are not yet in their places: {error}",
            "Search it once where its folder can be written to",
        ) from error


def _begin(index: Path, folder: Path, keep: Collection[str]) -> None:
    """Make a workshop that holds parts of the index; links are enough, as no file is changed once it counts."""
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
    """The files of a workshop that hold something of passages, and their sizes."""
    files = (file for name in (LUCENE, DENSE) for file in (folder / name).glob("*") if file.name != MANIFEST)
    return {file: size for file in files if (size := file.stat().st_size)}


def _state(index: Path) -> tuple[bytes | None, ...]:
    """What changes when parts change places."""

    def content(file: Path) -> bytes | None:
        try:
            return file.read_bytes()
        except OSError:
            return None

    moving = b"" if (index / _NEXT).is_dir() else None
    return moving, content(index / MANIFEST), content(index / DENSE / MANIFEST)


def _link(file: str, kept: str) -> None:
    try:
        os.link(file, kept)
    except OSError:  # not every file system has links
        shutil.copy2(file, kept)
