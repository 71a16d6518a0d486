"""The generations of an index: its folders `gen-N`, one of which counts.

The file `current` names it. A build or an addition makes the next generation, with hard links to what stays the same.
Then `current` is replaced in one step, and the old generation is deleted. So an index can be searched at any moment, as
it was before or as it is after. A generation is a run, which one process makes and another can continue.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from typedrag.core.errors import InputError, RetrievalError, path_error
from typedrag.files.locks import is_locked, lock_folder
from typedrag.files.text_files import parse_json, write_text
from typedrag.runs.folder import RunFolder, is_run, read_folder

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Kind = Literal["index build", "index append", "index embed"]

CURRENT = "current"
MANIFEST = "manifest.json"
FORMAT = 4  # the format of indexes
_NAME = re.compile(r"gen-(\d+)")
_DELETED = ".old"


def current_generation(index: Path) -> Path | None:
    """The folder of the generation that counts; None if there is none."""
    try:
        name = (index / CURRENT).read_text("utf-8").strip()
    except (OSError, ValueError):
        return None
    return index / name if _NAME.fullmatch(name) else None


def open_current(index: Path, opening: Callable[[Path], T]) -> T:
    """Call `opening` with the folder of the generation that counts, and return its result.

    It is called again if another generation took that one's place meanwhile.
    """
    while True:
        folder = current_generation(index)
        if folder is None:
            if not index.is_dir() or not any(_generations(index)):
                source, absent = (index, "") if index.exists() else ("SOURCE…", ": there is no such folder")
                raise RetrievalError(
                    f"{index} is no index{absent}", f"Build one: typedrag index build {source} --out DIR"
                )
            if is_locked(index):
                raise RetrievalError(f"index {index} is being built by another process", "Wait for it")
            hint = "Continue it with: typedrag index build SOURCE… --out DIR --resume"
            raise RetrievalError(f"the build of index {index} did not finish", hint)
        try:
            return opening(folder)
        except (RetrievalError, OSError):
            if current_generation(index) == folder:
                raise


def make_generation(
    index: Path,
    kind: Kind,
    identity: Mapping[str, Any],
    make: Callable[[RunFolder], object],
    *,
    resume: bool,
    force: bool,
) -> None:
    """Make the next generation of an index, continue it, or do nothing if it was made already.

    What `make` adds to the run's store is worth continuing: without results, a generation that failed is deleted.
    `force` gives up work that was interrupted; a build then replaces the index that is there.
    """
    if index.exists() and not index.is_dir():
        raise InputError(f"{index} is a file", "Name a folder for the index: --out DIR")
    with ExitStack() as held:
        try:
            held.enter_context(lock_folder(index))
            folder = _next_folder(index, kind, identity, resume=resume, force=force)
            if folder is None:
                return
            run = _open_run(folder, kind, identity, "Continue it as it was begun, or give it up with --force")
        except OSError as error:
            raise path_error(index, error) from error
        try:
            with run:
                make(run)
        except BaseException:
            if not _has_results(folder):
                _delete(folder)
            raise
        try:
            write_text(index / CURRENT, f"{folder.name}\n")
        except OSError as error:
            raise path_error(index, error) from error
        for other in _generations(index):
            if other != folder:
                _delete(other)


def link_files(source: Path, target: Path) -> None:
    """Put the files of a folder into another one too, by hard links where the file system has them."""
    target.mkdir()
    for file in source.iterdir():
        if file.is_file() and file.name != "write.lock":
            try:
                os.link(file, target / file.name)
            except OSError:
                shutil.copy2(file, target / file.name)


def read_manifest_file(file: Path, kind: type[M], what: str, hint: str) -> M:
    try:
        data = parse_json(file.read_text("utf-8"))
        if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > FORMAT:
            raise RetrievalError(f"{what} is of a newer format ({data['format']})", "Update typedrag")
        return kind.model_validate(data)
    except (OSError, ValueError) as error:
        raise RetrievalError(f"the manifest of {what} cannot be read", hint) from error


def _next_folder(index: Path, kind: Kind, identity: Mapping[str, Any], *, resume: bool, force: bool) -> Path | None:
    """The folder of the next generation, which may be begun already; None if there is nothing to make."""
    for deleted in index.glob(f".gen-*{_DELETED}"):  # what a killed process left
        shutil.rmtree(deleted, ignore_errors=True)
    for part in index.glob(f".{CURRENT}.*"):
        part.unlink()

    def number(folder: Path) -> int:
        return int(folder.name.removeprefix("gen-"))

    current, ours = current_generation(index), list(_generations(index))
    if current is None and any(not f.name.startswith(".") and f not in ours for f in index.iterdir()):
        raise InputError(f"folder {index} holds something that is no index", "Name a new or empty folder")
    begun = None
    for folder in ours:
        if current and number(folder) <= number(current):  # a commit was killed before it had deleted this one
            if folder != current:
                _delete(folder)
        elif force or not _has_results(folder):
            _delete(folder)
        else:
            begun = folder
    if begun and not resume:
        raise InputError(
            f"work on index {index} was begun and not finished", "Continue it with --resume, or give it up with --force"
        )
    if begun:
        return begun
    if current and kind == "index build" and not force:
        if not resume:
            raise InputError(f"index {index} is there already", "Replace it with --force")
        hint = (
            "Name the same, or rebuild with --force. Add sources by typedrag index append; to embed what the index "
            "holds, leave the sources out"
        )
        _open_run(current, kind, identity, hint).close()
        return None
    if current and kind == "index append" and resume:
        try:
            _open_run(current, kind, identity, "").close()
        except InputError:  # another work than this one was the last
            pass
        else:
            return None
    numbers = (number(folder) for folder in index.glob("gen-*") if _NAME.fullmatch(folder.name))
    return index / f"gen-{max(numbers, default=0) + 1}"


def _open_run(folder: Path, kind: Kind, identity: Mapping[str, Any], hint: str) -> RunFolder:
    try:
        return RunFolder.open(folder, identity, kind=kind, resume=True, items={}, durable=False)
    except InputError as error:
        raise InputError(error.problem, hint) from error


def _generations(index: Path) -> Iterator[Path]:
    """The generations of an index, but no folder of somebody else's that has such a name."""
    for folder in sorted(index.glob("gen-*")):
        named = _NAME.fullmatch(folder.name) and folder.is_dir()
        if named and (is_run(folder) or all(file.name.startswith(".") for file in folder.iterdir())):
            yield folder


def _has_results(folder: Path) -> bool:
    try:
        return bool(read_folder(folder).results)
    except InputError:
        return False


def _delete(folder: Path) -> None:
    """Delete a generation. It loses its name first, so that a kill leaves nothing that looks like one."""
    gone = folder.with_name(f".{folder.name}{_DELETED}")
    try:
        folder.rename(gone)
    except OSError:
        gone = folder
    shutil.rmtree(gone, ignore_errors=True)
