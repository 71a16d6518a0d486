"""Text files: reading users' own, writing ours."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from typedrag.errors import InputError


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """The lines of a UTF-8 file, gzipped if it ends in .gz, as they stand in it.

    Raises:
        InputError: If it cannot be read to its end.
    """
    opener: Callable[..., TextIO] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(
            f"{path} cannot be read: {error}", "It must be UTF-8 text, gzipped if it ends in .gz"
        ) from error


def write_text(file: Path, text: str) -> None:
    """Write a file whole or not at all, in the place of one that was there."""
    part = part_of(file)
    with naming(file):
        try:
            part.write_text(text, "utf-8")
            part.replace(file)
        except OSError:
            with suppress(OSError):
                part.unlink()
            raise


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Let an error of writing a file within say which it was: the system names those alone that it cannot open."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise


def part_of(file: Path) -> Path:
    """Where a file is while it is being written."""
    return file.with_name(f"{file.name}.part")
