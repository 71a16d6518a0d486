"""Passages out of files: JSONL, the TSV layout of DPR, and folders of documents that are split."""

from __future__ import annotations

import csv
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from typedrag.errors import InputError
from typedrag.records import Passage
from typedrag.retrieval.splitting import split_text
from typedrag.text_files import open_text

logger = logging.getLogger(__name__)

_SURROGATE = re.compile("[\ud800-\udfff]")
_INLINE = frozenset(
    "a abbr b bdi bdo big cite code data del dfn em font i ins kbd mark q s samp small span strike strong sub sup"
    " time tt u var wbr".split()
)
"""HTML elements that do not part words; all others do."""


@dataclass(frozen=True)
class FieldMap:
    """Which fields of a JSONL or TSV row hold what. A row without a title has an empty one."""

    id: str = "id"
    title: str = "title"
    text: str = "text"

    @classmethod
    def parse(cls, mapping: str) -> FieldMap:
        """A mapping written as `text=body,id=docno`.

        Raises:
            InputError: If it is not written so or names another target than id, title and text.

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


class Document(NamedTuple):
    """A file's title and text before it is split."""

    title: str
    text: str


def read_passages(sources: Iterable[Path], fields: FieldMap | None = None) -> Iterator[Passage]:
    """Stream the passages of files and folders, in a fixed order, in bounded memory.

    `.jsonl` and `.tsv` files (also gzipped) hold a passage a row; `.txt`, `.md`, `.html` and `.pdf`
    files, alone or in folders, are split into passages of about 100 words.

    Raises:
        InputError: If a source is missing or of another kind, or a row does not fit; it names the
            file and the line.
    """
    fields = fields or FieldMap()
    sources = list(sources)
    for source in sources:  # before hours are spent on those ahead of it
        if not source.exists():
            raise InputError(f"source {source} does not exist", "Name a file or a folder")
    for source, label in zip(sources, _labels(sources), strict=True):
        if source.is_dir():
            yield from _read_folder(source, prefix=f"{label}/" if len(sources) > 1 else "")
            continue
        name = source.name.removesuffix(".gz")
        if name.endswith((".jsonl", ".ndjson")):
            yield from _read_jsonl(source, fields)
        elif name.endswith(".tsv"):
            yield from _read_tsv(source, fields)
        elif source.suffix.lower() in _READERS:
            yield from _split_file(source, label)
        else:
            raise InputError(f"source {source} is of no kind that can be read", f"Readable: {READABLE}")


def _labels(sources: list[Path]) -> list[str]:
    """What the ids of each source's passages begin with: its name, or its path if the name is not enough."""
    names = [source.name for source in sources]
    return names if len(set(names)) == len(names) else [source.as_posix() for source in sources]


def _read_jsonl(path: Path, fields: FieldMap) -> Iterator[Passage]:
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _misfit(path, number, f"it is not JSON ({error})") from None
            if not isinstance(row, dict):
                raise _misfit(path, number, "it is not a JSON object")
            yield _passage(row, fields, path, number)


def _read_tsv(path: Path, fields: FieldMap) -> Iterator[Passage]:
    csv.field_size_limit(sys.maxsize)
    with open_text(path) as lines:
        rows = csv.DictReader(lines, delimiter="\t", strict=True)
        try:
            missing = {fields.id, fields.text} - set(rows.fieldnames or ())
            if missing:
                found = ", ".join(rows.fieldnames or ()) or "none"
                raise InputError(
                    f"{path} has no column {' or '.join(sorted(missing))} (columns: {found})",
                    "Map them: --fields id=COLUMN,text=COLUMN,title=COLUMN",
                )
            for row in rows:
                if None in row or None in row.values():
                    raise _misfit(path, rows.line_num, "its number of columns differs from the header's")
                yield _passage(row, fields, path, rows.line_num)
        except csv.Error as error:
            first_line = rows.line_num + 1  # of the row: a quote that is never closed swallows the rest
            raise _misfit(path, first_line, str(error)) from None


def _passage(row: dict[str, Any], fields: FieldMap, path: Path, number: int) -> Passage:
    passage_id, text, title = row.get(fields.id), row.get(fields.text), row.get(fields.title) or ""
    if passage_id is None or passage_id == "" or not isinstance(passage_id, str | int):
        raise _misfit(path, number, f"it has no id in field '{fields.id}'")
    if not isinstance(text, str) or not text.strip():
        raise _misfit(path, number, f"it has no text in field '{fields.text}'")
    if not isinstance(title, str):
        raise _misfit(path, number, f"its title in field '{fields.title}' is not text")
    if _SURROGATE.search(f"{passage_id}{title}{text}"):
        raise _misfit(path, number, "it holds half of a surrogate pair, which is no character")
    return Passage(id=str(passage_id), text=text, title=title)


def _misfit(path: Path, number: int, reason: str) -> InputError:
    return InputError(f"{path}, line {number} cannot be used: {reason}", "Mend the line, or map its fields: --fields")


def _read_folder(folder: Path, prefix: str) -> Iterator[Passage]:
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    files = sorted(folder / p for p in found if not any(part.startswith(".") for part in p.parts))
    readable = [p for p in files if p.suffix.lower() in _READERS]
    if not readable:
        raise InputError(
            f"folder {folder} holds no document that can be read", f"Readable in folders: {', '.join(_READERS)}"
        )
    if len(readable) < len(files):
        others = {p.suffix or p.name for p in files} - {p.suffix for p in readable}
        logger.warning("%s: left out %d files (%s)", folder, len(files) - len(readable), " ".join(sorted(others)))
    for path in readable:
        yield from _split_file(path, prefix + path.relative_to(folder).as_posix())


def _split_file(path: Path, name: str) -> Iterator[Passage]:
    try:
        title, text = _READERS[path.suffix.lower()](path)
    except Exception as error:  # pypdf raises errors of many kinds for broken files
        raise InputError(f"{path} cannot be read: {error}", "Mend it or take it out of the folder") from error
    texts = split_text(text)
    if not texts:
        logger.warning("%s: holds no text", path)
    for number, passage in enumerate(texts, 1):
        yield Passage(id=f"{name}#{number}", text=passage, title=title or path.stem)


def _read_plain(path: Path) -> Document:
    return Document(path.stem, path.read_text("utf-8-sig"))


def _read_markdown(path: Path) -> Document:
    text = path.read_text("utf-8-sig")
    headings = (line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#"))
    return Document(next(headings, path.stem), text)


def _read_html(path: Path) -> Document:
    from bs4 import BeautifulSoup

    page = BeautifulSoup(path.read_bytes(), "html.parser")
    title = page.title.get_text(strip=True) if page.title else path.stem
    for tag in page(["script", "style", "nav", "noscript", "template", "title"]):
        tag.decompose()
    for tag in page(lambda t: t.name not in _INLINE):
        tag.insert_before("\n")
        tag.append("\n")
    return Document(title, page.get_text())


def _read_pdf(path: Path) -> Document:
    from pypdf import PdfReader

    reader = PdfReader(path)
    title = (reader.metadata.title if reader.metadata else None) or path.stem
    text = "\n".join(page.extract_text() for page in reader.pages)
    return Document(_SURROGATE.sub("", title), _SURROGATE.sub("", text))


_READERS: dict[str, Callable[[Path], Document]] = {
    ".txt": _read_plain,
    ".md": _read_markdown,
    ".html": _read_html,
    ".htm": _read_html,
    ".pdf": _read_pdf,
}

READABLE = ".jsonl, .tsv (also .gz), " + ", ".join(_READERS)
