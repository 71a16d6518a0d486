"""Text files: reading users' own, writing ours."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO

from typedrag.errors import InputError

LONGEST_LINE = 20_000_000
"""Characters of a line: a small gzipped file can hold one that no memory holds. Lucene takes no longer texts."""
_SURROGATE = re.compile("[\ud800-\udfff]")


@contextmanager
def open_text(path: Path, *, errors: str = "strict", newline: str | None = "") -> Iterator[TextIO]:
    """The lines of a UTF-8 file, or of a UTF-16 one with a byte order mark, gzipped if it ends in .gz.

    Args:
        path: The file.
        errors: What is done with bytes that are no text, as `open` takes it.
        newline: Which line ends there are, as `open` takes it; by default they stay as they stand in the file.

    Raises:
        InputError: If it cannot be read to its end.
    """
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as binary:
            start = binary.peek(4)[:4]
            encoding = "utf-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
            with io.TextIOWrapper(binary, encoding, errors, newline) as file:
                yield file
    except (OSError, EOFError, UnicodeError, zlib.error) as error:
        raise InputError(
            f"{path} cannot be read: {error}", "It must be UTF-8 text, gzipped if it ends in .gz"
        ) from error


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


def numbered_lines(file: IO[str]) -> Iterator[Line]:
    """The lines of a file that anyone may have made, never more than one of them in memory.

    Args:
        file: Opened with `surrogateescape` if lines that are no UTF-8 are to be told apart from others.
    """
    number = 0
    while text := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(text) > LONGEST_LINE and not text.endswith("\n"):
            yield Line(number, "", f"it is longer than {LONGEST_LINE:,} characters")
            while (rest := file.readline(LONGEST_LINE)) and not rest.endswith("\n"):
                pass
        elif has_half_characters(text):
            yield Line(number, "", "it is not UTF-8 text")
        else:
            yield Line(number, text)


def usable_lines(file: IO[str], source: str) -> Iterator[str]:
    """The same, all of which must be usable.

    Args:
        file: What they are read from.
        source: Its name.

    Raises:
        InputError: At the first that cannot be used.
    """
    for line in numbered_lines(file):
        if line.problem:
            raise InputError(f"{source}, line {line.number} cannot be used: {line.problem}", "Split it, or take it out")
        yield line.value


def parse_json(text: str) -> Any:
    """What a JSON text holds, whoever wrote it.

    Raises:
        ValueError: If it is no JSON, or none that Python can hold; the message says why, in a line. It is a
            `json.JSONDecodeError` where a place in the text is to blame.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:  # of the conversion to an integer
        raise ValueError("it holds a number with more digits than can be read") from None


def has_half_characters(text: str) -> bool:
    """Whether a text holds half of a surrogate pair, which JSON can write and no file or server takes.

    Example:
        >>> has_half_characters("a smile: \\ud83d"), has_half_characters("a smile: \U0001f600")
        (True, False)
    """
    return bool(_SURROGATE.search(text))


def without_half_characters(text: str) -> str:
    """The text without them."""
    return _SURROGATE.sub("", text)


def has_swallowed_rows(cells: Sequence[str], delimiter: str) -> bool:
    """Whether a row of a table holds others: a quote that is text, at the beginning of a cell, hides the columns and
    lines up to the next one. Of commas that cannot be told, as texts of several lines have them.

    Example:
        >>> has_swallowed_rows(["1", "Heroes\\tA\\n2\\tSecond"], "\\t"), has_swallowed_rows(["1", "two\\nlines"], "\\t")
        (True, False)
    """
    return delimiter == "\t" and any("\n" in cell and "\t" in cell for cell in cells)


def swallowed(last: int) -> str:
    """What is wrong with a row that holds others, up to a line of this number."""
    mend = 'write a quote that is text as "" in a quoted cell'
    return f"its quote is closed only in line {last}, after other columns; {mend}"


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


def write_json(file: Path, values: Any) -> None:
    """Write JSON values to a file likewise."""
    write_text(file, json.dumps(values, ensure_ascii=False, indent=1) + "\n")


def write_json_lines(file: Path, rows: Iterable[Any]) -> None:
    """Write JSON values to a file likewise, one a line."""
    write_text(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


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
