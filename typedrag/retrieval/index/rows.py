"""Passages from files with one passage a row: JSONL, and DPR's TSV layout."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.files.text_files import (
    LONGEST_LINE,
    Line,
    has_swallowed_rows,
    numbered_lines,
    open_text,
    parse_json,
    swallowed,
    whole,
)

LONGEST_ID = 32_000
"""Bytes that an id may have: Lucene's limit."""
KINDS = (".jsonl", ".ndjson", ".tsv")
NO_METADATA: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class FieldMap:
    """The names of the fields of a JSONL or TSV row. A row without a title has an empty one."""

    id: str = "id"
    title: str = "title"
    text: str = "text"

    @classmethod
    def parse(cls, mapping: str) -> FieldMap:
        """A mapping written as `text=body,id=docno`.

        Raises:
            InputError: If it has another form, or names another target than id, title and text.

        Example:
            >>> FieldMap.parse("text=body,id=docno")
            FieldMap(id='docno', title='title', text='body')
        """
        pairs = [pair.partition("=") for pair in mapping.split(",") if pair]
        if not all(target in cls.__dataclass_fields__ and field for target, _, field in pairs):
            raise InputError(
                f"'{mapping}' is no field mapping",
                "Write it like text=body,id=docno (targets: id, title, text)",
            )
        return cls(**{target: field for target, _, field in pairs})


class Row(NamedTuple):
    """A row of a file: its passage with metadata, or the reason why it has none."""

    line: int
    passage: Passage | None
    problem: str = ""
    metadata: Mapping[str, Any] = NO_METADATA


def file_kind(path: Path) -> str:
    """The file ending that tells the kind, in lower case and without that of gzip."""
    name = Path(path.name.lower())
    return Path(name.stem).suffix if name.suffix == ".gz" else name.suffix


def read_rows(path: Path, fields: FieldMap, metadata: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of a JSONL or TSV file, also gzipped, in bounded memory.

    Args:
        path: The file.
        fields: The names of the fields of the passage.
        metadata: The names of further fields to keep, where a row has them.
    """
    for line in _table_lines(path, fields) if file_kind(path) == ".tsv" else _json_lines(path):
        problem, passage, values = line.problem, None, NO_METADATA
        if not problem:
            try:
                passage = make_passage(line.value, fields)
                values = {name: line.value[name] for name in metadata if line.value.get(name) is not None}
            except ValueError as error:
                problem = str(error)
        yield Row(line.number, passage, problem, values)


def _json_lines(path: Path) -> Iterator[Line]:
    """Yield the value of each line of a JSONL file, also gzipped; blank lines are skipped."""
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


def _table_lines(path: Path, fields: FieldMap) -> Iterator[Line]:
    csv.field_size_limit(LONGEST_LINE)  # an unclosed quote swallows no more than this
    broken: list[Line] = []

    def texts(file: TextIO) -> Iterator[str]:
        for line in numbered_lines(file):
            broken.extend([line] if line.problem else [])
            yield line.value or "\n"

    with open_text(path, errors="surrogateescape") as file:
        rows = csv.reader(texts(file), delimiter="\t", strict=True)
        try:
            header = next(rows, [])
        except csv.Error as error:
            raise InputError(f"{path}, line 1 cannot be used: {error}", "Mend the header") from None
        if missing := {fields.id, fields.text} - set(header):
            raise InputError(
                f"{path} has no column {' or '.join(sorted(missing))} (columns: {', '.join(header) or 'none'})",
                "Map them: --fields id=COLUMN,text=COLUMN,title=COLUMN",
            )
        cells: list[str] | None = []
        while cells is not None:
            number, problem = rows.line_num + 1, ""  # the line where the row begins: quoted cells may span several
            try:
                cells = next(rows, None)
            except csv.Error as error:
                cells, problem = [], str(error)
            if cells and len(cells) != len(header):
                problem = "its number of columns differs from the header's"
            elif has_swallowed_rows(cells or (), "\t"):
                problem = swallowed(rows.line_num)
            if broken:
                yield from broken
                broken.clear()
            elif cells or problem:
                yield Line(number, dict(zip(header, cells or (), strict=False)), problem)


def make_passage(row: Any, fields: FieldMap) -> Passage:
    """The passage of a row; a ValueError with the reason if it has none."""
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    passage_id, text, title = row.get(fields.id), row.get(fields.text), row.get(fields.title) or ""
    if passage_id is None or passage_id == "" or not isinstance(passage_id, str | int) or isinstance(passage_id, bool):
        raise ValueError(f"it has no id in field '{fields.id}'")
    if fields.text in row and text in ("", None) and isinstance(title, str):
        text = title  # all that it can be found by, as in corpora of papers with missing abstracts
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"it has no text in field '{fields.text}'")
    if not isinstance(title, str):
        raise ValueError(f"its title in field '{fields.title}' is not text")
    whole(f"{passage_id}{title}{text}")
    if (length := len(str(passage_id).encode())) > LONGEST_ID:
        raise ValueError(f"its id has {length:,} bytes, more than {LONGEST_ID:,}")
    if (length := _java_length(title) + _java_length(text) + 1) > LONGEST_LINE:
        raise ValueError(f"its title and text have {length:,} characters, more than {LONGEST_LINE:,}")
    return Passage(id=str(passage_id), text=text, title=title)


def _java_length(text: str) -> int:
    """The length in Java, which counts characters beyond the first 65,536 as two."""
    return len(text) if len(text) < LONGEST_LINE // 4 else len(text.encode("utf-16-le")) // 2
