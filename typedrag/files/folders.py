"""Folders that are written whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of one that was there when all is written.

    A process that is killed leaves what was there or what is new. Killed in the moment between two
    renamings, it leaves what was there beside its place, as `.NAME.….old`.
    """
    folder = folder.resolve()
    part, old = (folder.with_name(f".{folder.name}.{uuid4().hex[:8]}.{kind}") for kind in ("part", "old"))
    try:
        part.mkdir(parents=True)
        yield part
        with suppress(FileNotFoundError):
            folder.rename(old)
        try:
            part.rename(folder)
        except OSError:
            with suppress(FileNotFoundError):
                old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)
