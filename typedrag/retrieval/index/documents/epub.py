"""EPUB books: the pages of a zip file, in the order of its package document."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

from typedrag.core.extras import require
from typedrag.retrieval.index.documents.html import read_html
from typedrag.retrieval.index.splitting import Document

_LARGEST = 50_000_000
"""Bytes that a part of a book may have: a zip file may claim any size."""


def read_epub(path: Path) -> Document:
    """A book's title and the blocks of its pages."""
    require("lxml")
    with ZipFile(path) as book:
        container = _xml(book, "META-INF/container.xml")
        package = container.xpath("string(//*[local-name()='rootfile']/@full-path)")
        root = _xml(book, package)
        title = root.xpath("string(//*[local-name()='metadata']/*[local-name()='title'])")
        files = {item.get("id"): item.get("href", "") for item in root.xpath("//*[local-name()='item']")}
        pages = [files.get(item.get("idref"), "") for item in root.xpath("//*[local-name()='itemref']")]
        names = [posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(p))) for p in pages if p]
        return Document(title, [block for name in names for block in read_html(_part(book, name)).content])  # type: ignore[misc]


def _xml(book: ZipFile, name: str) -> Any:
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    return etree.fromstring(_part(book, name), parser)


def _part(book: ZipFile, name: str) -> bytes:
    with book.open(name) as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"{name} in it is larger than {_LARGEST:,} bytes")
    return data
