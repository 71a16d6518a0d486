"""Text files: reading users' files, writing ours."""

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
from typing import IO, Annotated, Any, NamedTuple, TextIO
from uuid import uuid4

from pydantic import AfterValidator

from typedrag.core.errors import InputError

LONGEST_LINE = 20_000_000
"""Characters of a line at most: a small gzipped file can hold a line larger than memory. It is Lucene's limit too."""
PART = ".part"
"""The end of the names of files that are being written, or that a killed process left."""
_SURROGATE = re.compile("[\ud800-\udfff]")


@contextmanager
def open_text(path: Path, *, errors: str = "strict", newline: str | None = "") -> Iterator[TextIO]:
    """Open a UTF-8 file, or a UTF-16 one with a byte order mark, gunzipped if it ends in .gz.

    Args:
        path: The file.
        errors: The treatment of bytes that are no text, as in `open`.
        newline: The line ends, as in `open`; by default they are kept as they are in the file.
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
        value: Its text, or its JSON value; meaningless if there is a problem.
        problem: The reason why it cannot be used; empty if it can.
    """

    number: int
    value: Any
    problem: str = ""


def numbered_lines(file: IO[str]) -> Iterator[Line]:
    """Yield the lines of an untrusted file, with one line in memory at most.

    Args:
        file: Opened with `surrogateescape` if lines that are not UTF-8 are to be reported as such.
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
    """Yield the texts of a file's lines, all of which must be usable.

    Args:
        file: The file to read.
        source: Its name, for messages.
    """
    for line in numbered_lines(file):
        if line.problem:
            raise InputError(f"{source}, line {line.number} cannot be used: {line.problem}", "Split it, or take it out")
        yield line.value


def parse_json(text: str) -> Any:
    """The value of an untrusted JSON text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:  # raised by the conversion to an integer
        raise ValueError("it holds a number with more digits than can be read") from None


def has_half_characters(text: str) -> bool:
    """True if a text holds half of a surrogate pair, which JSON can write but no file or server takes.

    Example:
        >>> has_half_characters("a smile: \\ud83d"), has_half_characters("a smile: \U0001f600")
        (True, False)
    """
    return bool(_SURROGATE.search(text))


def whole(value: str) -> str:
    """The text, after a check that all its characters are whole: see `has_half_characters`."""
    if has_half_characters(value):
        raise ValueError("it holds half of a surrogate pair, which is no character")
    return value


WholeText = Annotated[str, AfterValidator(whole)]
"""A text of a pydantic model whose characters are all whole."""


def without_half_characters(text: str) -> str:
    """The text without halves of surrogate pairs."""
    return _SURROGATE.sub("", text)


def has_swallowed_rows(cells: Sequence[str], delimiter: str) -> bool:
    """True if a row of a table holds others: a literal quote at the beginning of a cell hides the columns and
    lines up to the next quote. For commas this cannot be told, since texts of several lines have them too.

    Example:
        >>> has_swallowed_rows(["1", "Heroes\\tA\\n2\\tSecond"], "\\t"), has_swallowed_rows(["1", "two\\nlines"], "\\t")
        (True, False)
    """
    return delimiter == "\t" and any("\n" in cell and "\t" in cell for cell in cells)


def swallowed(last: int) -> str:
    """The problem of a row that holds others, up to the line of this number."""
    hint = 'write a quote that is text as "" in a quoted cell'
    return f"its quote is closed only in line {last}, after other columns; {hint}"


def write_text(file: Path, text: str) -> None:
    """Write a file whole or not at all, replacing one that was there."""
    part = temporary_path(file)
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
    """Put the file's name into an error of writing it: the system names only files that it cannot open."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise


def temporary_path(file: Path) -> Path:
    """A temporary path for a file while it is being written, no other writer's."""
    return file.with_name(f".{file.name}.{uuid4().hex[:8]}{PART}")
