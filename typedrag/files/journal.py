"""Journals of finished work, written line by line, so that a killed process resumes where it was."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from typedrag.core.errors import InputError
from typedrag.files.text_files import naming


class Journal:
    """JSON objects in the lines of a file. A last line that a kill cut off counts as not written.

    Args:
        path: The file, made at the first `append`.
        redact: Removes from a line what must not be kept, such as keys.
    """

    def __init__(self, path: Path, redact: Callable[[str], str] = str) -> None:
        self.path = path
        self._redact = redact
        self._mended = False
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the objects of the lines; the file is not changed."""
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                yield dict(json.loads(line))
            except (ValueError, TypeError):
                problem = f"{self.path}, line {number} is not as it was written"
                raise InputError(problem, "Delete it, or name another folder") from None

    def append(self, values: Mapping[str, Any]) -> None:
        """Write an object as a line; safe from several threads."""
        line = self._redact(json.dumps(values, ensure_ascii=False)) + "\n"
        with self._lock, naming(self.path), self.path.open("ab") as file:
            if not self._mended:
                file.truncate(self.path.read_bytes().rfind(b"\n") + 1)
                self._mended = True
            file.write(line.encode())
            file.flush()
