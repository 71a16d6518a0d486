"""Rows from JSONL, CSV, TSV and JSON files, from the web and from the Hugging Face hub, each with its place; `parse`
checks a row against the layout that a source declares."""

import ast
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from typedrag.core.errors import InputError, Unavailable, names_hint
from typedrag.core.extras import require
from typedrag.core.question_types import QuestionType, SubQuestionType
from typedrag.files.text_files import (
    LONGEST_LINE,
    open_table,
    open_text,
    parse_json,
    swallowed_rows_problem,
    usable_lines,
    whole,
)

READABLE = ".jsonl, .csv, .tsv, .json (also .gz)"
LONGEST_ID = 1_000
_LONGEST_FILE = 1_000_000_000
"""Characters of a JSON file at most: it is read as a whole."""
TABLES = (".csv", ".tsv")


OnFault = Callable[[str, InputError], None]
"""Takes the place of a row that cannot be used, and the error; it raises it, or returns to go on with the next row."""


def raise_fault(place: str, error: InputError) -> None:
    raise error


class Entry(NamedTuple):
    """A row of plain JSON values (in CSV and TSV files, of texts), its file and line or position for messages, as in
    `dev.json, data[3]`, and the subset of its file or split, which may be empty."""

    value: Any
    place: str
    subset: str = ""


def _check_text(value: str) -> str:
    if not value.strip():
        raise ValueError("it is blank")
    return whole(value)


def _check_id(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and len(value) > LONGEST_ID:
        raise ValueError(f"it has {len(value):,} characters, where {LONGEST_ID:,} are allowed")
    return value


Text = Annotated[str, AfterValidator(_check_text)]

Id = Annotated[str, BeforeValidator(_check_id, json_schema_input_type=str | int), AfterValidator(_check_text)]
"""A text of at most `LONGEST_ID` characters; a whole number is read as its text."""

TypeName = Annotated[QuestionType, Field(strict=False)]


class Layout(BaseModel):
    """The fields that a source's rows must have; others are ignored, and nothing is converted."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class ReferenceRow(Layout):
    """A labelled answer, in a user's own file."""

    text: Text
    label: int


class NuggetRow(Layout):
    """A nugget, in a user's own file; its text is enough."""

    text: Text
    vital: bool = True
    wordings: dict[str, Text] = {}


class SubQuestionRow(Layout):
    """A sub-question with its type, in a user's own file."""

    text: Text
    type: Annotated[SubQuestionType, Field(strict=False)]


L = TypeVar("L", bound=Layout)


def parse(layout: type[L], entry: Entry) -> L:
    """The row as an instance of its layout."""
    try:
        return layout.model_validate(entry.value)
    except ValidationError as error:
        # a union's members are in the path, too, such as list[Text]
        paths = ([str(part) for part in e["loc"] if "[" not in str(part)] for e in error.errors())
        reasons = (f"{'.'.join(p) or 'row'}: {e['msg']}" for p, e in zip(paths, error.errors(), strict=True))
        faulty = dict.fromkeys(str(e["loc"][0]) for e in error.errors() if e["loc"])
        abouts = {name: field.description for name, field in layout.model_fields.items() if field.description}
        holds = [f"'{name}' holds {abouts[name]}" for name in faulty if name in abouts]
        raise misfit(entry.place, "; ".join(reasons), "; ".join(holds)) from None


def listed(text: str) -> list[str]:
    """The texts of a list written as one text, in JSON or Python; else the text alone."""
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
    """The members of all texts, some of which are written lists; each once, in order, without blank ones."""
    return tuple(dict.fromkeys(member for text in texts for member in listed(text) if member.strip()))


def renamed(entry: Entry, names: Sequence[str], fields: Mapping[str, str]) -> dict[str, Any]:
    """The values of a user's row, by our names of the fields; None for a field that the row lacks."""
    row = entry.value
    if not isinstance(row, dict):
        raise misfit(entry.place, "it is no object with fields")
    if unknown := [name for name in fields if name not in names]:
        raise InputError(f"no field is called '{unknown[0]}'", names_hint("Fields", unknown[0], names))
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


def misfit(place: str, reason: str, hint: str = "") -> InputError:
    """The error for a row that does not fit."""
    return InputError(f"{place} cannot be used: {reason}", f"Correct or remove it{f': {hint}' if hint else ''}")


def read_subsets(path: Path, files: Mapping[str, Sequence[str]], subset: str | None = None) -> Iterator[Entry]:
    """Yield the rows of all files that `find_files` finds."""
    for part, file in find_files(path, files, subset):
        yield from read_rows(file, part)


def read_rows(path: Path, subset: str = "", *, kind: str = "", on_fault: OnFault = raise_fault) -> Iterator[Entry]:
    """Yield the rows of a JSONL, CSV or TSV file, or the members of a JSON file's list; also gzipped."""
    kind = kind or Path(_bare(path)).suffix.lower()
    if kind in (".jsonl", ".ndjson"):
        rows = _read_json_lines(path, on_fault)
    elif kind in TABLES:
        rows = _read_table(path, on_fault)
    elif kind == ".json":
        rows = members(Entry(read_json(path), str(path)))
    else:
        raise InputError(f"{path} is of no kind that can be read", f"Readable: {READABLE}")
    for row in rows:
        yield row._replace(subset=subset)


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    with open_text(path) as file:
        text = file.read(_LONGEST_FILE + 1)
    if len(text) > _LONGEST_FILE:
        raise misfit(str(path), f"it has more than {_LONGEST_FILE:,} characters; JSONL may have more")
    return decode(text, str(path))


def members(entry: Entry, field: str = "") -> Iterator[Entry]:
    """Yield the members of an entry's list, which is the entry itself or its value in `field`."""
    value = entry.value
    if field:
        value = value.get(field) if isinstance(value, dict) else None
    if not isinstance(value, list):
        raise misfit(entry.place, f"it has no list in field '{field}'" if field else "it is no list")
    parent = f"{entry.place}{'.' if entry.place.endswith(']') else ', '}{field}" if field else f"{entry.place}, "
    for number, member in enumerate(value):
        yield Entry(member, f"{parent}[{number}]", entry.subset)


def find_files(path: Path, files: Mapping[str, Sequence[str]], subset: str | None = None) -> list[tuple[str, Path]]:
    """The files of the subsets, as pairs of subset and file."""
    subsets = choose_subsets(list(files), subset)
    if path.is_dir():
        there = {}
        for name in subsets:
            candidates = (path / f"{file}{ending}" for file in files[name] for ending in ("", ".gz"))
            there[name] = next((file for file in candidates if file.is_file()), None)
        present = [(name, file) for name, file in there.items() if file is not None]
        missing = [name for name, file in there.items() if file is None]
        if not present or (subset and missing):
            names = " or ".join(files[missing[0]])
            raise InputError(f"folder {path} holds no file of subset '{missing[0]}'", f"It should be called {names}")
        return present
    if not path.exists():
        raise InputError(f"{path} does not exist", "Name a file or a folder")
    stands_for = [name for name in files if any(path.with_name(_bare(path)).match(n) for n in files[name])]
    if stands_for and stands_for[0] not in subsets:
        raise InputError(f"{path} holds subset '{stands_for[0]}', not '{subset}'", "Name the folder, or another subset")
    if stands_for or len(subsets) == 1:
        return [((stands_for or subsets)[0], path)]
    raise InputError(f"{path} does not say by its name which subset it is", f"Name it: {', '.join(files)}")


def choose_subsets(known: Sequence[str], subset: str | None) -> list[str]:
    """The subsets in a comma-separated list; all known ones if there is no list."""
    subsets = [name.strip() for name in subset.split(",")] if subset else list(known)
    for name in subsets:
        if name not in known:
            raise InputError(f"no subset is called '{name}'", names_hint("Subsets", name, known))
    return subsets


def _bare(path: Path) -> str:
    return path.name.removesuffix(".gz")


def _read_json_lines(path: Path, on_fault: OnFault) -> Iterator[Entry]:
    with open_text(path) as lines:
        for number, line in enumerate(usable_lines(lines, str(path)), 1):
            place = f"{path}, line {number}"
            if not line.strip():
                continue
            try:
                value = decode(line, str(path), number)
            except InputError as error:
                on_fault(place, error)
            else:
                yield Entry(value, place)


def decode(text: str, source: str, line: int = 0) -> Any:
    """The value of a JSON text."""
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        reason = f"it is not JSON ({error.msg}, column {error.colno})"
        raise misfit(f"{source}, line {line or error.lineno}", reason) from None
    except ValueError as error:
        raise misfit(f"{source}, line {line or 1}", str(error)) from None


def _read_table(path: Path, on_fault: OnFault) -> Iterator[Entry]:
    csv.field_size_limit(LONGEST_LINE)
    with open_table(path) as (lines, delimiter):
        rows = csv.reader(usable_lines(lines, str(path)), delimiter=delimiter, strict=True)
        header: list[str] = []
        while True:
            place = f"{path}, line {rows.line_num + 1}"  # the line where the row begins: quoted cells may span several
            try:
                cells = next(rows, None)
            except csv.Error as error:
                raise misfit(place, str(error)) from None
            if cells is None:
                return
            if not cells or (not header and cells[0].lower().startswith("sep=")):
                continue
            if not header:
                header = cells
                if len(set(header)) < len(header):
                    raise misfit(place, "two columns have the same name")
                continue
            if len(cells) != len(header):
                on_fault(place, misfit(place, f"it has {len(cells)} columns, the header {len(header)}"))
            elif problem := swallowed_rows_problem(cells, delimiter, rows.line_num):
                on_fault(place, misfit(place, problem))
            else:
                yield Entry(dict(zip(header, cells, strict=True)), place)


def hub_rows(
    name: str,
    splits: Mapping[str, str],
    *,
    config: str | None = None,
    subset: str | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[Entry]:
    """Yield the rows of a dataset on the Hugging Face hub."""
    require("datasets")
    import datasets

    for part in choose_subsets(list(splits), subset):
        place = f"{name} ({splits[part]})"
        try:
            rows = datasets.load_dataset(name, config, split=splits[part])
            rows = rows.select_columns(list(columns)) if columns else rows
        except Exception as error:  # for many causes: no connection, no such dataset, config, split or column
            raise _fetch_error(f"dataset {name} of the Hugging Face hub", error) from error
        for number, row in enumerate(rows, 1):
            yield Entry(row, f"{place}, row {number}", part)


def download(url: str, *, extract: bool = False) -> Path:
    """A file from the web, or the folder unpacked from it, in the cache."""
    require("datasets")
    import datasets

    manager = datasets.DownloadManager()
    try:
        return Path(manager.download_and_extract(url) if extract else manager.download(url))
    except Exception as error:  # the kind of error depends on the protocol
        raise _fetch_error(url, error) from error


def cache_folder() -> Path:
    """The cache folder of fetched files."""
    require("datasets")
    import datasets

    return Path(datasets.config.HF_DATASETS_CACHE)


def _fetch_error(what: str, error: Exception) -> Unavailable:
    message = str(error).partition("\n")[0]
    reason = f": {message}" if message and message != what else ""
    return Unavailable(f"{what} cannot be fetched{reason}", "Check the connection, or name a copy: --path")
