"""Passages from files and folders: rows of JSONL and of DPR's TSV layout, documents that are split, and the contexts of
questions, as MuSiQue, HotpotQA and 2WikiMultihopQA publish them.
"""

from __future__ import annotations

import csv
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import shorten
from types import MappingProxyType
from typing import Any, NamedTuple, TextIO

from typedrag.core.errors import InputError, TypedRAGError
from typedrag.core.records import Passage
from typedrag.datasets import reading
from typedrag.datasets.reasoning_chains import WithContexts
from typedrag.files import text_files
from typedrag.files.text_files import LONGEST_LINE, Line, shown_name
from typedrag.retrieval.index.bounded import Passages, read_documents
from typedrag.retrieval.index.documents import READERS
from typedrag.retrieval.index.splitting import LeftOut

logger = logging.getLogger(__name__)

LONGEST_ID = 32_000  # bytes that an id may have: Lucene's limit
KINDS = (".jsonl", ".ndjson", ".tsv", ".csv", ".json")
READABLE = f"{', '.join(KINDS)} (also .gz), {', '.join(kind for kind in READERS if kind not in KINDS)}"
_NO_METADATA: Mapping[str, Any] = MappingProxyType({})
_NAMED = 20  # bad files or rows that a message names; the others it counts
_MUCH = 1 / 3  # of a document's text, if left out, is warned of by name
_SHOWN = 80  # characters of a part that is left out


@dataclass(frozen=True)
class FieldMap:
    """The names of the fields of a JSONL or TSV row. A row without a title has an empty one."""

    id: str = "id"
    title: str = "title"
    text: str = "text"

    @classmethod
    def parse(cls, mapping: str) -> FieldMap:
        """A mapping written as `text=body,id=docno`.

        Example:
            >>> FieldMap.parse("text=body,id=docno")
            FieldMap(id='docno', title='title', text='body')
        """
        pairs = [pair.partition("=") for pair in mapping.split(",") if pair]
        if not all(target in cls.__dataclass_fields__ and field for target, _, field in pairs):
            raise InputError(
                f"'{mapping}' is no field mapping", "Write it like text=body,id=docno (targets: id, title, text)"
            )
        return cls(**{target: field for target, _, field in pairs})


class Placed(NamedTuple):
    """A passage, its place (a file, and the line of a row) and its metadata."""

    passage: Passage
    place: str
    metadata: Mapping[str, Any] = _NO_METADATA


class _Problems:
    """Files and rows that cannot be used: refused all at once, or left out with a warning."""

    def __init__(self, skip: bool) -> None:
        self.skip, self.found = skip, list[InputError]()

    def add(self, problem: InputError) -> None:
        if self.skip:
            logger.warning("left out: %s", problem.problem)
        else:
            self.found.append(problem)

    def refuse(self) -> None:
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            lines = [f"\n  {problem.problem}" for problem in self.found[:_NAMED]]
            more = f"\n  and {len(self.found) - _NAMED} more" if len(self.found) > _NAMED else ""
            raise InputError(
                f"{len(self.found)} files cannot be used:{''.join(lines)}{more}\n",
                "Correct them, or leave out what is bad: --skip-bad",
            )


class _Shares:
    """Shares of the documents' text that are not indexed, as menus and hidden parts of pages are not."""

    def __init__(self) -> None:
        self._indexed, self._left_out, self._most = 0, 0, list[str]()

    def add(self, path: Path, texts: Iterable[str], parts: Sequence[LeftOut]) -> None:
        indexed, left_out = sum(len("".join(text.split())) for text in texts), sum(part.size for part in parts)
        self._indexed, self._left_out = self._indexed + indexed, self._left_out + left_out
        share = left_out / max(1, indexed + left_out)
        if parts:
            shown = "; ".join(shorten(part.text, _SHOWN, placeholder=" …") for part in parts)
            logger.info("%s: left out %.0f%% of its text: %s", path, 100 * share, shown)
        if share > _MUCH:
            self._most.append(f"{path} ({share:.0%})")

    def warn(self) -> None:
        if not self._left_out:
            return
        share = 100 * self._left_out / (self._indexed + self._left_out)
        logger.warning(
            "%.1f%% of the documents' text is left out, as it is around the content or hidden: typedrag -v lists it",
            share,
        )
        if self._most:
            more = f" and {len(self._most) - _NAMED} more" if len(self._most) > _NAMED else ""
            logger.warning("more than a third is left out of %s%s", ", ".join(self._most[:_NAMED]), more)


def read_passages(
    sources: Iterable[Path], fields: FieldMap | None = None, *, skip_bad: bool = False, indexed: Sequence[str] = ()
) -> Iterator[Passage]:
    """Stream the passages of files and folders, in a fixed order, in bounded memory.

    `.jsonl` and `.tsv` files (also gzipped) hold a passage a row, and so do `.csv` and `.json` files whose rows have an
    id and a text; documents, such as `.txt`, `.md`, `.html` and `.pdf` files, are split into passages of about 100
    words. Both may be in folders; links that lead out of a folder are not followed.

    Args:
        sources: Files and folders.
        fields: The names of the fields of JSONL and TSV rows.
        skip_bad: Leave out files and rows that cannot be used, with a warning each.
        indexed: The sources of the index that passages are added to: files of the same name get other ids.
    """
    for placed in read_placed(sources, fields, skip_bad=skip_bad, indexed=indexed):
        yield placed.passage


def source_reader(
    sources: Sequence[Path],
    fields: FieldMap | None,
    *,
    contexts: bool = False,
    skip_bad: bool,
    indexed: Sequence[str] = (),
    metadata: Sequence[str] = (),
) -> Callable[[], Iterator[Placed]]:
    """The reader of files and folders, or of files of questions with contexts; each call streams them again."""
    if contexts:
        return partial(read_contexts, sources, skip_bad=skip_bad)
    return partial(read_placed, sources, fields, skip_bad=skip_bad, indexed=indexed, metadata=metadata)


def read_placed(
    sources: Iterable[Path],
    fields: FieldMap | None = None,
    *,
    skip_bad: bool = False,
    indexed: Sequence[str] = (),
    metadata: Sequence[str] = (),
) -> Iterator[Placed]:
    """The passages of `read_passages`, each with its place and those fields of its row that `metadata` names."""
    fields, sources, problems = fields or FieldMap(), list(sources), _Problems(skip_bad)
    for source in sources:  # all are checked before hours are spent on the first
        if not source.exists():
            raise InputError(f"source {source} does not exist", "Name a file or a folder")
        if not source.is_dir() and not _is_readable(source):
            raise InputError(f"source {source} is of no kind that can be read", f"Readable: {READABLE}")
    shares = _Shares()
    files = list(_files(sources, indexed))
    rows = {path for path, _ in files if _file_kind(path) in KINDS and _has_rows(path, fields)}
    with closing(read_documents([path for path, _ in files if path not in rows])) as documents:
        for path, name in files:
            if path in rows:
                placed = _read_rows(path, fields, problems, metadata)
            else:
                placed = _number_passages(path, name, next(documents), problems, shares)
            for one in placed:
                if not problems.found:  # otherwise the rest is only searched for further problems
                    yield one
    problems.refuse()
    shares.warn()


def read_contexts(sources: Sequence[Path], *, skip_bad: bool = False) -> Iterator[Placed]:
    """The passages of questions in files as of MuSiQue, HotpotQA or 2WikiMultihopQA, each once, by their hashes."""
    problems, ids = _Problems(skip_bad), set[str]()
    for source in sources:  # all are checked before hours are spent on the first
        if not source.is_file():
            raise InputError(f"source {source} is no file", "Name files of questions with their passages")
    for entry in (entry for source in sources for entry in reading.read_rows(source)):
        try:
            contexts = reading.parse(WithContexts, entry).passages
            if not contexts:
                raise ValueError(
                    "it has neither paragraphs, as MuSiQue has, nor a context, as HotpotQA and 2WikiMultihopQA have"
                )
            rows = ({"id": p.id, "title": p.title, "text": p.text} for p in contexts)
            passages = [_make_passage(row, FieldMap()) for row in rows]
        except (InputError, ValueError) as error:
            problems.add(error if isinstance(error, InputError) else reading.misfit(entry.place, str(error)))
            problems.refuse()
            continue
        for passage in passages:
            if passage.id not in ids:
                ids.add(passage.id)
                yield Placed(passage, entry.place)


def _files(sources: list[Path], indexed: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield the files to read, each with the beginning of its passages' ids."""
    # however a source is written: docs, ./docs and /home/me/docs are one
    own, others = ([Path(os.path.normpath(Path(p).absolute())) for p in group] for group in (sources, indexed))
    paths = [*(set(others) - set(own)), *own]
    named_alike = len({path.name for path in paths}) < len(paths)
    above = os.path.commonpath([path.parent for path in paths])
    for source, path in zip(sources, own, strict=True):
        label = shown_name(path.relative_to(above).as_posix() if named_alike else path.name)
        if not source.is_dir():
            yield source, label
            continue
        prefix = f"{label}/" if len(paths) > 1 else ""
        for file in _walk(source):
            yield file, prefix + shown_name(file.relative_to(source).as_posix())


def _walk(folder: Path) -> list[Path]:
    """The readable files of a folder, in a fixed order; warns of those left out."""
    home, files = folder.resolve(), list[Path]()

    def unreadable(error: OSError) -> None:
        logger.warning("%s: left out, it cannot be read: %s", error.filename, error.strerror)

    for parent, folders, names in os.walk(folder, onerror=unreadable):
        for name in [name for name in folders if not name.startswith(".") and Path(parent, name).is_symlink()]:
            logger.warning("%s: left out, linked folders are not followed: name it as a source", Path(parent, name))
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(parent, name) for name in names if not name.startswith((".", "~$"))):  # ~$: Office's locks
            if path.is_symlink() and not path.resolve().is_relative_to(home):
                logger.warning("%s: left out, the link leads out of %s", path, folder)
            elif path.is_symlink() and not path.exists():
                logger.warning("%s: left out, the link leads nowhere", path)
            elif path.is_file():
                files.append(path)
    readable = [path for path in sorted(files) if _is_readable(path)]
    if not readable:
        raise InputError(f"folder {folder} holds nothing that can be read", f"Readable: {READABLE}")
    if len(readable) < len(files):
        others = {path.suffix or path.name for path in files if not _is_readable(path)}
        count = len(files) - len(readable)
        unread = f"{count} file{'s' if count > 1 else ''}"
        logger.warning("%s: left out %s (%s)", folder, unread, " ".join(sorted(others)))
    return readable


def _file_kind(path: Path) -> str:
    """The file ending that tells the kind, in lower case and without that of gzip."""
    name = Path(path.name.lower())
    return Path(name.stem).suffix if name.suffix == ".gz" else name.suffix


def _is_readable(path: Path) -> bool:
    return _file_kind(path) in KINDS or path.suffix.lower() in READERS


def _has_rows(path: Path, fields: FieldMap) -> bool:
    """False of a CSV or JSON file without passages in its rows, which then is a document."""
    kind = _file_kind(path)
    if kind not in (".csv", ".json") or fields != FieldMap():
        return True
    try:
        row = next(reading.read_rows(path), None)
    except InputError:  # said where it is read
        return kind == ".csv"
    has_rows = row is not None and isinstance(row.value, dict) and {fields.id, fields.text} <= row.value.keys()
    if not has_rows:
        logger.info("%s: split as a document, as its rows have no fields id and text; --fields maps them", path)
    return has_rows


def _read_rows(path: Path, fields: FieldMap, problems: _Problems, metadata: Sequence[str]) -> Iterator[Placed]:
    kind = _file_kind(path)
    try:
        if kind == ".json":
            rows = enumerate(reading.read_rows(path), 1)
            lines: Iterable[Line] = (Line(number, entry.value) for number, entry in rows)
        else:
            lines = _table_lines(path, fields) if kind in reading.TABLES else _json_lines(path)
        for line in lines:
            place, problem = f"{path}, {'row' if kind == '.json' else 'line'} {line.number}", line.problem
            if not problem:
                try:
                    passage = _make_passage(line.value, fields)
                    values = {name: line.value[name] for name in metadata if line.value.get(name) is not None}
                except ValueError as error:
                    problem = str(error)
            if not problem:
                yield Placed(passage, place, values)
                continue
            hint = "Correct the line, map its fields with --fields, or leave such rows out with --skip-bad"
            problems.add(InputError(f"{place} cannot be used: {problem}", hint))
            if not problems.skip:
                return
    except InputError as error:
        problems.add(error)


def _json_lines(path: Path) -> Iterator[Line]:
    """Yield the value of each line of a JSONL file; blank lines are skipped."""
    with text_files.open_text(path, errors="surrogateescape") as file:
        for line in text_files.numbered_lines(file):
            if line.problem or not line.value.strip():
                yield from [line] if line.problem else ()
                continue
            try:
                line = line._replace(value=text_files.parse_json(line.value))
            except json.JSONDecodeError as error:
                line = line._replace(problem=f"it is not JSON ({error.msg}, column {error.colno})")
            except ValueError as error:
                line = line._replace(problem=f"it is not JSON that can be read: {error}")
            yield line


def _table_lines(path: Path, fields: FieldMap) -> Iterator[Line]:
    csv.field_size_limit(LONGEST_LINE)  # an unclosed quote swallows no more than this
    broken: list[Line] = []

    def texts(file: TextIO) -> Iterator[str]:
        for line in text_files.numbered_lines(file):
            broken.extend([line] if line.problem else [])
            yield line.value or "\n"

    with text_files.open_table(path, errors="surrogateescape") as (file, delimiter):
        rows = csv.reader(texts(file), delimiter=delimiter, strict=True)
        try:
            header = next((cells for cells in rows if cells and not cells[0].lower().startswith("sep=")), [])
        except csv.Error as error:
            raise InputError(f"{path}, line 1 cannot be used: {error}", "Correct the header") from None
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
            elif not problem:
                problem = text_files.swallowed_rows_problem(cells or (), delimiter, rows.line_num)
            if broken:
                yield from broken
                broken.clear()
            elif cells or problem:
                yield Line(number, dict(zip(header, cells or (), strict=False)), problem)


def _make_passage(row: Any, fields: FieldMap) -> Passage:
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
    text_files.whole(f"{passage_id}{title}{text}")
    if (length := len(str(passage_id).encode())) > LONGEST_ID:
        raise ValueError(f"its id has {length:,} bytes, more than {LONGEST_ID:,}")
    # Java counts characters beyond the first 65,536 as two
    length = len(title) + len(text) + 1
    if length > LONGEST_LINE // 4:
        length = len(f"{title}\n{text}".encode("utf-16-le")) // 2
    if length > LONGEST_LINE:
        raise ValueError(f"its title and text have {length:,} characters, more than {LONGEST_LINE:,}")
    return Passage(id=str(passage_id), text=text, title=title)


def _number_passages(
    path: Path, name: str, document: Passages | TypedRAGError, problems: _Problems, shares: _Shares
) -> Iterator[Placed]:
    if isinstance(document, InputError):
        problems.add(document)
        return
    if isinstance(document, TypedRAGError):
        raise document
    if not document.texts:
        logger.warning("%s: holds no text", path)
    shares.add(path, document.texts, document.left_out)
    for number, text in enumerate(document.texts, 1):
        passage = Passage(id=f"{name}#{number}", text=text, title=document.title)
        yield Placed(passage, f"{path}, passage {number}")
