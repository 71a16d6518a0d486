"""Journals: what is done, written line by line, so that a process that was killed goes on where it was."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from typedrag.errors import InputError
from typedrag.files.text_files import naming


class Journal:
    """JSON objects in the lines of a file. A last line that a kill cut off counts as not written.

    Args:
        path: Made by the first that is appended.
        redact: Takes out of a line what must not be kept, such as keys.
        durable: Whether to wait for the disk each time. A kill loses nothing either way.
    """

    def __init__(self, path: Path, redact: Callable[[str], str] = str, *, durable: bool = False) -> None:
        self.path = path
        self._redact = redact
        self._durable = durable
        self._mended = False
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """What the lines hold; the file is left as it is.

        Raises:
            InputError: At a line that is none of a journal's.
        """
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                yield dict(json.loads(line))
            except (ValueError, TypeError):
                raise self.unreadable(number) from None

    def unreadable(self, number: int) -> InputError:
        """The refusal of a line that this journal cannot have written."""
        return InputError(f"{self.path}, line {number} is not as it was written", "Delete it, or name another folder")

    def append(self, values: Mapping[str, Any]) -> None:
        """Write a line; several threads may."""
        line = self._redact(json.dumps(values, ensure_ascii=False)) + "\n"
        with self._lock, naming(self.path), self.path.open("ab") as file:
            if not self._mended:
                file.truncate(self.path.read_bytes().rfind(b"\n") + 1)
                self._mended = True
            file.write(line.encode())
            file.flush()
            if self._durable:
                os.fsync(file.fileno())
