"""Passages from files and folders: rows of JSONL and TSV, and documents that are split."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from typedrag.core.errors import InputError
from typedrag.core.records import Passage
from typedrag.retrieval.index.documents import READERS, read_document
from typedrag.retrieval.index.rows import KINDS, NO_METADATA, FieldMap, file_kind, read_rows
from typedrag.retrieval.index.splitting import split_blocks, split_text

logger = logging.getLogger(__name__)

READABLE = f"{', '.join(KINDS)} (also .gz), {', '.join(READERS)}"
_NAMED = 20
"""Bad files or rows that a message names; the others it counts."""


class Placed(NamedTuple):
    """A passage, its place (a file, and the line of a row) and its metadata."""

    passage: Passage
    place: str
    metadata: Mapping[str, Any] = NO_METADATA


class Problems:
    """Files and rows that cannot be used: refused all at once, or left out with a warning."""

    def __init__(self, skip: bool) -> None:
        self.skip, self.found = skip, list[InputError]()

    def add(self, problem: InputError) -> None:
        """Add one problem."""
        if self.skip:
            logger.warning("left out: %s", problem.problem)
        else:
            self.found.append(problem)

    def refuse(self) -> None:
        """Raise the problems so far, if any."""
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            lines = [f"\n  {problem.problem}" for problem in self.found[:_NAMED]]
            more = f"\n  and {len(self.found) - _NAMED} more" if len(self.found) > _NAMED else ""
            raise InputError(
                f"{len(self.found)} files cannot be used:{''.join(lines)}{more}\n",
                "Mend them, or leave out what is bad: --skip-bad",
            )


def read_passages(
    sources: Iterable[Path],
    fields: FieldMap | None = None,
    *,
    skip_bad: bool = False,
    indexed: Sequence[str] = (),
) -> Iterator[Passage]:
    """Stream the passages of files and folders, in a fixed order, in bounded memory.

    `.jsonl` and `.tsv` files (also gzipped) hold a passage a row; documents, such as `.txt`, `.md`,
    `.html` and `.pdf` files, are split into passages of about 100 words. Both may be in folders;
    links that lead out of a folder are not followed.

    Args:
        sources: Files and folders.
        fields: The names of the fields of JSONL and TSV rows.
        skip_bad: Leave out files and rows that cannot be used, with a warning each.
        indexed: The sources of the index that passages are added to: files of the same name get other ids.

    Raises:
        InputError: If a source is missing or of another kind, or files or rows cannot be used; the message
            names all such files, and the line of the first such row of each.
    """
    for placed in read_placed(sources, fields, skip_bad=skip_bad, indexed=indexed):
        yield placed.passage


def read_placed(
    sources: Iterable[Path],
    fields: FieldMap | None = None,
    *,
    skip_bad: bool = False,
    indexed: Sequence[str] = (),
    metadata: Sequence[str] = (),
) -> Iterator[Placed]:
    """The passages of `read_passages`, each with its place and those fields of its row that `metadata` names."""
    fields, sources, problems = fields or FieldMap(), list(sources), Problems(skip_bad)
    for source in sources:  # all are checked before hours are spent on the first
        if not source.exists():
            raise InputError(f"source {source} does not exist", "Name a file or a folder")
        if not source.is_dir() and not _is_readable(source):
            raise InputError(f"source {source} is of no kind that can be read", f"Readable: {READABLE}")
    for path, name in _files(sources, indexed):
        is_table = file_kind(path) in KINDS
        placed = _read_rows(path, fields, problems, metadata) if is_table else _split_file(path, name, problems)
        for one in placed:
            if not problems.found:  # otherwise the rest is only searched for further problems
                yield one
    problems.refuse()


def find_places(passage_id: str, passages: Iterable[Placed]) -> list[str]:
    """The places of the first two passages with this id."""
    return list(islice((placed.place for placed in passages if placed.passage.id == passage_id), 2))


def _files(sources: list[Path], indexed: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield the files to read, each with the beginning of its passages' ids."""
    others = [Path(name) for name in indexed if Path(name) not in sources]
    paths = [*dict.fromkeys(others), *sources]
    names = [path.name for path in paths]
    for source in sources:
        label = source.name if len(set(names)) == len(names) else source.as_posix()
        if not source.is_dir():
            yield source, label
            continue
        prefix = f"{label}/" if len(paths) > 1 else ""
        for path in _walk(source):
            yield path, prefix + path.relative_to(source).as_posix()


def _is_readable(path: Path) -> bool:
    return file_kind(path) in KINDS or path.suffix.lower() in READERS


def _walk(folder: Path) -> list[Path]:
    """The readable files of a folder, in a fixed order; warns of those left out."""
    home, files = folder.resolve(), list[Path]()

    def unreadable(error: OSError) -> None:
        logger.warning("%s: left out, it cannot be read: %s", error.filename, error.strerror)

    for parent, folders, names in os.walk(folder, onerror=unreadable):
        for name in [name for name in folders if not name.startswith(".") and Path(parent, name).is_symlink()]:
            logger.warning("%s: left out, linked folders are not followed: name it as a source", Path(parent, name))
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(parent, name) for name in names if not name.startswith(".")):
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


def _read_rows(path: Path, fields: FieldMap, problems: Problems, metadata: Sequence[str]) -> Iterator[Placed]:
    try:
        for row in read_rows(path, fields, metadata):
            place = f"{path}, line {row.line}"
            if row.passage is not None:
                yield Placed(row.passage, place, row.metadata)
                continue
            hint = "Mend the line, map its fields with --fields, or leave such rows out with --skip-bad"
            problems.add(InputError(f"{place} cannot be used: {row.problem}", hint))
            if not problems.skip:
                return
    except InputError as error:
        problems.add(error)


def _split_file(path: Path, name: str, problems: Problems) -> Iterator[Placed]:
    try:
        title, content = read_document(path)
    except InputError as error:
        problems.add(error)
        return
    texts = split_text(content) if isinstance(content, str) else list(split_blocks(content))
    if not texts:
        logger.warning("%s: holds no text", path)
    for number, text in enumerate(texts, 1):
        yield Placed(Passage(id=f"{name}#{number}", text=text, title=title), f"{path}, passage {number}")
