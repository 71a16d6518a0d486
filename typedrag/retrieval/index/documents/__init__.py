"""Readers of several kinds of documents: the title and the content of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from typedrag.core.errors import InputError, TypedRAGError, first_line
from typedrag.core.extras import MissingExtra
from typedrag.files.text_files import open_text, without_half_characters
from typedrag.retrieval.index.documents.epub import read_epub
from typedrag.retrieval.index.documents.html import read_html
from typedrag.retrieval.index.documents.markdown import read_markdown
from typedrag.retrieval.index.documents.office import read_docx, read_pptx
from typedrag.retrieval.index.documents.pdf import read_pdf
from typedrag.retrieval.index.splitting import Document

_LONGEST_TITLE = 300


def read_document(path: Path) -> Document:
    """A file's title, by default its name without the ending, and its content."""
    try:
        title, content = READERS[path.suffix.lower()](path)
    except MissingExtra as error:
        raise MissingExtra(error.package, str(path)) from error
    except TypedRAGError:
        raise
    except (Exception, RecursionError) as error:  # readers raise errors of many kinds for broken files
        raise InputError(
            f"{path} cannot be read: {first_line(error)}", "Mend it, or leave it out: --skip-bad"
        ) from error
    title = " ".join(without_half_characters(title).split())[:_LONGEST_TITLE]
    if isinstance(content, str):
        return Document(title or path.stem, without_half_characters(content))
    return Document(title or path.stem, [b._replace(text=without_half_characters(b.text)) for b in content])


def _text(path: Path) -> str:
    with open_text(path, newline=None) as file:
        return file.read()


READERS: dict[str, Callable[[Path], Document]] = {
    ".txt": lambda path: Document("", _text(path)),
    ".md": lambda path: read_markdown(_text(path)),
    ".html": lambda path: read_html(path.read_bytes()),
    ".htm": lambda path: read_html(path.read_bytes()),
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".pptx": read_pptx,
    ".epub": read_epub,
}
"""The reader of each file ending."""
