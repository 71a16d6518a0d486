"""Lines of users' own files, bounded in memory, and what each holds as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from typedrag.text_files import LONGEST_LINE, has_half_characters, open_text, parse_json


class Line(NamedTuple):
    """A line of a file.

    Attributes:
        number: From 1.
        value: Its text, or what it holds as JSON; of no use where there is a problem.
        problem: Why it cannot be used; empty if it can.
    """

    number: int
    value: Any
    problem: str = ""


def json_lines(path: Path) -> Iterator[Line]:
    """What each line of a JSONL file holds, also gzipped; blank lines are passed over.

    Raises:
        InputError: If the file cannot be read to its end.
    """
    with open_text(path, errors="surrogateescape") as file:
        for line in bounded_lines(file):
            if line.problem:
                yield line
            elif line.value.strip():
                yield _decoded(line)


def bounded_lines(file: TextIO) -> Iterator[Line]:
    """The lines of a file that was opened with `surrogateescape`, never more than one of them in memory."""
    number = 0
    while text := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(text) > LONGEST_LINE and not text.endswith("\n"):
            while (rest := file.readline(LONGEST_LINE)) and not rest.endswith("\n"):
                pass
            yield Line(number, "", f"it is longer than {LONGEST_LINE:,} characters")
        elif has_half_characters(text):
            yield Line(number, "", "it is not UTF-8 text")
        else:
            yield Line(number, text)


def _decoded(line: Line) -> Line:
    try:
        return line._replace(value=parse_json(line.value))
    except json.JSONDecodeError as error:
        return line._replace(value="", problem=f"it is not JSON ({error.msg}, column {error.colno})")
    except ValueError as error:
        return line._replace(value="", problem=f"it is not JSON that can be read: {error}")
