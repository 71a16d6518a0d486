"""What the lines of users' own files hold as JSON, bounded in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from typedrag.files.text_files import Line, numbered_lines, open_text, parse_json


def json_lines(path: Path) -> Iterator[Line]:
    """What each line of a JSONL file holds, also gzipped; blank lines are passed over.

    Raises:
        InputError: If the file cannot be read to its end.
    """
    with open_text(path, errors="surrogateescape") as file:
        for line in numbered_lines(file):
            if line.problem:
                yield line
            elif line.value.strip():
                yield _decoded(line)


def _decoded(line: Line) -> Line:
    try:
        return line._replace(value=parse_json(line.value))
    except json.JSONDecodeError as error:
        return line._replace(value="", problem=f"it is not JSON ({error.msg}, column {error.colno})")
    except ValueError as error:
        return line._replace(value="", problem=f"it is not JSON that can be read: {error}")
