"""Files: those of users read as text, ours written whole or not at all, and their digests."""

import codecs
import gzip
import hashlib
import io
import json
import logging
import math
import os
import re
import shutil
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple, TextIO
from uuid import uuid4

from pydantic import AfterValidator

from typedrag.core.errors import InputError

logger = logging.getLogger(__name__)

LONGEST_LINE = 20_000_000
"""Characters of a line at most: a small gzipped file can hold a line larger than memory. It is Lucene's limit too."""
PART = ".part"
"""The end of the names of files that are being written, or that a killed process left."""
_SURROGATE = re.compile("[\ud800-\udfff]")


@contextmanager
def open_text(path: Path, *, errors: str = "strict", newline: str | None = "", encoding: str = "") -> Iterator[TextIO]:
    """Open a UTF-8 file, or a UTF-16 one with a byte order mark, gunzipped if it ends in .gz.

    `errors`, `newline` and `encoding` are those of `open`; by default line ends are kept as they are in the file.
    """
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as binary:
            start = binary.peek(4)[:4]
            utf_16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            encoding = encoding or ("utf-16" if utf_16 else "utf-8-sig")
            with io.TextIOWrapper(binary, encoding, errors, newline) as file:
                yield file
    except (OSError, EOFError, UnicodeError, zlib.error) as error:
        raise InputError(
            f"{path} cannot be read: {error}", "It must be UTF-8 text, gzipped if it ends in .gz"
        ) from error


@contextmanager
def open_table(path: Path, *, errors: str = "strict") -> Iterator[tuple[TextIO, str]]:
    """Open a CSV or TSV file, as Excel writes them, too, and find its delimiter.

    One that is neither UTF-8 nor UTF-16 is read as Windows-1252. The columns of a CSV file are parted by what its first
    line has most of: commas, semicolons or tabs; or by what its line `sep=;` says.
    """
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    if Path(path.name.lower().removesuffix(".gz")).suffix == ".tsv":
        with open_text(path, errors=errors) as file:
            yield file, "\t"
        return
    encoding, decoder = "", codecs.getincrementaldecoder("utf-8")()
    with suppress(OSError, EOFError, zlib.error), opener(path, "rb") as binary:  # said where it is read
        start = binary.peek(4)[:4]
        utf_16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if start[1::2] == b"\0\0":
            encoding = "utf-16-le"
        try:
            while not (utf_16 or encoding) and (block := binary.read(1 << 20)):
                decoder.decode(block)
        except UnicodeDecodeError:
            encoding = "cp1252"
            logger.warning("%s is not UTF-8: read as Windows-1252", path)
    with open_text(path, errors=errors, encoding=encoding) as file:
        first = file.readline(LONGEST_LINE)
    outside = re.sub(r'"[^"]*"?', "", first)
    delimiter = max(",;\t", key=outside.count)
    if first.lower().startswith("sep=") and len(first.rstrip()) == 5:
        delimiter = first.rstrip()[4]
    with open_text(path, errors=errors, encoding=encoding) as file:
        yield file, delimiter


class Line(NamedTuple):
    """A line of a file: its number from 1, its text or JSON value, and the reason why it cannot be used, if any."""

    number: int
    value: Any
    problem: str = ""


def numbered_lines(file: IO[str]) -> Iterator[Line]:
    """Yield the lines of an untrusted file, with one line in memory at most.

    Lines that are not UTF-8 are reported as such if it is opened with `surrogateescape`.
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
    """Yield the texts of a file's lines, all of which must be usable; `source` is its name in messages."""
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


LONGEST_YAML = 2_000_000  # characters of a YAML file; each takes hundreds of bytes while it is read
MOST_YAML_VALUES = 100_000
"""Values of a YAML file, with each use of a shared one: a few lines of anchors may stand for billions."""


def parse_yaml(text: str) -> Any:
    """The value of an untrusted YAML text; a ValueError with the reason if it has none."""
    import yaml

    if len(text) > LONGEST_YAML:
        raise ValueError(f"it is longer than {LONGEST_YAML:,} characters")
    counts: dict[int, float] = {}

    def count(node: Any) -> float:
        if id(node) not in counts:
            counts[id(node)] = math.inf  # of a value that holds itself
            children = node.value if isinstance(node, yaml.CollectionNode) else ()
            counts[id(node)] = 1 + sum(
                count(n) for child in children for n in (child if type(child) is tuple else [child])
            )
        return counts[id(node)]

    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if count(node) > MOST_YAML_VALUES:
            raise ValueError(f"its anchors stand for more than {MOST_YAML_VALUES:,} values")
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    finally:
        loader.dispose()


def has_half_characters(text: str) -> bool:
    """True if a text holds half of a surrogate pair, which JSON can write but no file or server takes."""
    return bool(_SURROGATE.search(text))


def whole(value: str) -> str:
    if has_half_characters(value):
        raise ValueError("it holds half of a surrogate pair, which is no character")
    return value


WholeText = Annotated[str, AfterValidator(whole)]
"""A text of a pydantic model whose characters are all whole."""


def shown_name(name: str) -> str:
    """The name of a file with its bytes that are not UTF-8 written as `\\xe9`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def drop_half_characters(text: str) -> str:
    return _SURROGATE.sub("", text)


def swallowed_rows_problem(cells: Sequence[str], delimiter: str, last: int) -> str:
    """The problem of a row of a table that ends in line `last` and holds others; empty if it holds none.

    A literal quote at the beginning of a cell hides the columns and lines up to the next quote. For commas this cannot
    be detected, since texts of several lines have them too.
    """
    if delimiter != "\t" or not any("\n" in cell and "\t" in cell for cell in cells):
        return ""
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


def hash_files(path: Path) -> str:
    """The SHA-256 of a file, or of the names and contents of all files in a folder, in hexadecimal."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        listing = "".join(f"{file.relative_to(path).as_posix()}\n{hash_files(file)}\n" for file in files)
        return hashlib.sha256(listing.encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


class Journal:
    """JSON objects in the lines of a file, so that a killed process resumes where it was.

    A last line that a kill cut off counts as not written. `redact` removes from lines what must not be kept.
    """

    def __init__(self, path: Path, redact: Callable[[str], str] = str) -> None:
        self.path, self._redact, self._mended, self._lock = path, redact, False, threading.Lock()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the objects of the lines; the file is not changed."""
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                yield dict(parse_json(line.decode()))
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
