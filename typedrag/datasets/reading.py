"""Rows out of JSONL, CSV, TSV and JSON files, each with the place it stands at.

A source declares the layout of its rows as a pydantic model; `parse` checks a row against it.
"""

from __future__ import annotations

import ast
import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from typedrag.errors import InputError
from typedrag.files.text_files import (
    LONGEST_LINE,
    has_half_characters,
    has_swallowed_rows,
    open_text,
    parse_json,
    swallowed,
    usable_lines,
)
from typedrag.question_types import SubQuestionType

READABLE = ".jsonl, .csv, .tsv, .json (also .gz)"
LONGEST_ID = 1_000
_LONGEST_FILE = 1_000_000_000
"""Characters of a JSON file, which is read as a whole."""
TABLES = {".csv": ",", ".tsv": "\t"}
"""The endings of tables, with what parts their cells."""


class Entry(NamedTuple):
    """A row as it was read.

    Attributes:
        value: Plain JSON values; in CSV and TSV files the cells as text.
        place: File and line for messages; in a JSON file, which has no lines for rows, the entry's
            position, as in `dev.json, data[3]`.
        subset: The subset that its file or split stands for; may be empty.
    """

    value: Any
    place: str
    subset: str = ""


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("it is blank")
    return whole(value)


def whole(value: str) -> str:
    """The text, if all its characters are whole; see `has_half_characters`.

    Raises:
        ValueError: If one is not.
    """
    if has_half_characters(value):
        raise ValueError("it holds half of a surrogate pair, which is no character")
    return value


def _short(value: str) -> str:
    if len(value) > LONGEST_ID:
        raise ValueError(f"it has {len(value):,} characters, where {LONGEST_ID:,} are allowed")
    return value


def _number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Text = Annotated[str, AfterValidator(_text)]
"""Characters that are not all blank."""

Id = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_text), AfterValidator(_short)]
"""Text of at most `LONGEST_ID` characters, or a whole number written as such."""


class Layout(BaseModel):
    """The fields that a source's rows must have; others are ignored, and nothing is converted."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class ReferenceRow(Layout):
    """A labelled answer, in files of one's own."""

    text: Text
    label: int


class SubQuestionRow(Layout):
    """A sub-question with its type, in files of one's own."""

    text: Text
    type: Annotated[SubQuestionType, Field(strict=False)]


L = TypeVar("L", bound=Layout)


def parse(layout: type[L], entry: Entry) -> L:
    """The row as its layout describes it.

    Raises:
        InputError: If it does not fit; the message names place and field.
    """
    try:
        return layout.model_validate(entry.value)
    except ValidationError as error:
        reasons = (f"{'.'.join(map(str, e['loc'])) or 'row'}: {e['msg']}" for e in error.errors())
        raise misfit(entry.place, "; ".join(reasons)) from None


def listed(text: str) -> list[str]:
    """The texts of a list that was written as one, in JSON or as Python writes it; else the text alone.

    Example:
        >>> listed("['pitot tube', 'Pitot probe']"), listed("[Verse 1]")
        (['pitot tube', 'Pitot probe'], ['[Verse 1]'])
    """
    if not text.lstrip().startswith("["):
        return [text]
    for read in (parse_json, ast.literal_eval):
        try:
            value = read(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, list) and value and all(isinstance(member, str) for member in value):
            return value
    return [text]


def all_listed(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts that some are lists of, each once and in their order; blank ones are left out."""
    return tuple(dict.fromkeys(member for text in texts for member in listed(text) if member.strip()))


def renamed(entry: Entry, names: Sequence[str], fields: Mapping[str, str]) -> dict[str, Any]:
    """The values of a row of a user's own, by the names that fields have here; None where it has no such field.

    Args:
        names: Of the fields here.
        fields: What some of them are called in the row.

    Raises:
        InputError: If it is no object, lacks a field that is named, or has one whose name is that of a field here
            but for case, spaces or a plural, which else would be passed by in silence.
    """
    row = entry.value
    if not isinstance(row, dict):
        raise misfit(entry.place, "it is no object with fields")
    if unknown := [name for name in fields if name not in names]:
        raise InputError(f"no field is called '{unknown[0]}'", f"Fields: {', '.join(names)}")
    if absent := [field for field in fields.values() if field not in row]:
        raise misfit(entry.place, f"it has no field '{absent[0]}' (fields: {', '.join(row)})")
    called = {fields.get(name, name): name for name in names}
    meant = {_bare_name(name): name for name in names if fields.get(name, name) not in row}
    for field in row:
        if field not in called and (name := meant.get(_bare_name(field))):
            raise InputError(
                f"{entry.place}: its field '{field}' would not be read (its fields: {', '.join(map(repr, row))}; "
                f"those that are read: {', '.join(called)})",
                f"Call it '{name}', or say that it is that: --field '{name}={field}'",
            )
    return {name: row.get(field) for field, name in called.items()}


def _bare_name(field: str) -> str:
    return "".join(character for character in field.casefold() if character.isalnum()).removesuffix("s")


def misfit(place: str, reason: str) -> InputError:
    """The refusal of a row."""
    return InputError(f"{place} cannot be used: {reason}", "Mend it, or take it out")


def rows_of(path: Path, files: Mapping[str, Sequence[str]], subset: str | None = None) -> Iterator[Entry]:
    """The rows of all files that `files_of` finds."""
    for part, file in files_of(path, files, subset):
        yield from read_rows(file, part)


def read_rows(path: Path, subset: str = "", *, kind: str = "") -> Iterator[Entry]:
    """The rows of a JSONL, CSV or TSV file, or the members of a JSON file's list; also gzipped.

    Args:
        subset: What the rows are said to belong to.
        kind: Such as `.csv`, where the name does not say it.

    Raises:
        InputError: If the file is missing or of another kind, or a row cannot be read.
    """
    kind = kind or Path(_bare(path)).suffix.lower()
    if kind in (".jsonl", ".ndjson"):
        rows = _json_lines(path)
    elif kind in TABLES:
        rows = _table(path, TABLES[kind])
    elif kind == ".json":
        rows = members(Entry(read_json(path), str(path)))
    else:
        raise InputError(f"{path} is of no kind that can be read", f"Readable: {READABLE}")
    for row in rows:
        yield row._replace(subset=subset)


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        InputError: If it cannot be read; the message names the line.
    """
    with open_text(path) as file:
        text = file.read(_LONGEST_FILE + 1)
    if len(text) > _LONGEST_FILE:
        raise misfit(str(path), f"it has more than {_LONGEST_FILE:,} characters; JSONL may have more")
    return decode(text, str(path))


def members(entry: Entry, field: str = "") -> Iterator[Entry]:
    """The members of a list that an entry is or, if a field is named, has there.

    Raises:
        InputError: If there is no list.
    """
    found = entry.value
    if field:
        found = found.get(field) if isinstance(found, dict) else None
    if not isinstance(found, list):
        raise misfit(entry.place, f"it has no list in field '{field}'" if field else "it is no list")
    parent = f"{entry.place}{'.' if entry.place.endswith(']') else ', '}{field}" if field else f"{entry.place}, "
    for number, value in enumerate(found):
        yield Entry(value, f"{parent}[{number}]", entry.subset)


def files_of(path: Path, files: Mapping[str, Sequence[str]], subset: str | None = None) -> list[tuple[str, Path]]:
    """Which files hold which subsets.

    Args:
        path: A file, or a folder that holds some of them.
        files: For each subset the names that its file may have, relative to the folder.
        subset: One of them, or several with commas between; None takes all that are there.

    Raises:
        InputError: If there is no such subset or file.
    """
    wanted = subsets_of(list(files), subset)
    if path.is_dir():
        there = [(name, _first(path, files[name])) for name in wanted]
        found = [(name, file) for name, file in there if file is not None]
        missing = [name for name, file in there if file is None]
        if not found or (subset and missing):
            names = " or ".join(files[missing[0]])
            raise InputError(f"folder {path} holds no file of subset '{missing[0]}'", f"It should be called {names}")
        return found
    if not path.exists():
        raise InputError(f"{path} does not exist", "Name a file or a folder")
    stands_for = [name for name in files if any(path.with_name(_bare(path)).match(n) for n in files[name])]
    if stands_for and stands_for[0] not in wanted:
        raise InputError(f"{path} holds subset '{stands_for[0]}', not '{subset}'", "Name the folder, or another subset")
    if stands_for or len(wanted) == 1:
        return [((stands_for or wanted)[0], path)]
    raise InputError(f"{path} does not say by its name which subset it is", f"Name it: {', '.join(files)}")


def subsets_of(known: Sequence[str], subset: str | None) -> list[str]:
    """The subsets that a comma-separated list names; all if there is none.

    Raises:
        InputError: If one is not known.

    Example:
        >>> subsets_of(["nq", "squad", "trivia"], "trivia,nq")
        ['trivia', 'nq']
    """
    wanted = [name.strip() for name in subset.split(",")] if subset else list(known)
    for name in wanted:
        if name not in known:
            raise InputError(f"no subset is called '{name}'", f"Subsets: {', '.join(known)}")
    return wanted


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    candidates = (folder / f"{name}{ending}" for name in names for ending in ("", ".gz"))
    return next((file for file in candidates if file.is_file()), None)


def _bare(path: Path) -> str:
    return path.name.removesuffix(".gz")


def _json_lines(path: Path) -> Iterator[Entry]:
    with open_text(path) as lines:
        for number, line in enumerate(usable_lines(lines, str(path)), 1):
            if line.strip():
                yield Entry(decode(line, str(path), number), f"{path}, line {number}")


def decode(text: str, source: str, line: int = 0) -> Any:
    """What a JSON text holds.

    Args:
        source: The name of its file.
        line: Where it stands there; 0 if it is the whole.

    Raises:
        InputError: If it cannot be read; the message names the line.
    """
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        reason = f"it is not JSON ({error.msg}, column {error.colno})"
        raise misfit(f"{source}, line {line or error.lineno}", reason) from None
    except ValueError as error:
        raise misfit(f"{source}, line {line or 1}", str(error)) from None


def _table(path: Path, delimiter: str) -> Iterator[Entry]:
    csv.field_size_limit(LONGEST_LINE)
    with open_text(path) as lines:
        rows = csv.reader(usable_lines(lines, str(path)), delimiter=delimiter, strict=True)
        header: list[str] = []
        while True:
            place = f"{path}, line {rows.line_num + 1}"  # where the row begins: quoted cells may go over several
            try:
                cells = next(rows, None)
            except csv.Error as error:
                raise misfit(place, str(error)) from None
            if cells is None:
                return
            if not cells:
                continue
            if not header:
                header = cells
                if len(set(header)) < len(header):
                    raise misfit(place, "two columns have the same name")
                continue
            if len(cells) != len(header):
                raise misfit(place, f"it has {len(cells)} columns, the header {len(header)}")
            if has_swallowed_rows(cells, delimiter):
                raise misfit(place, swallowed(rows.line_num))
            yield Entry(dict(zip(header, cells, strict=True)), place)
