"""Readers of documents: the title and the blocks of text, HTML, Markdown, EPUB, Word, PowerPoint and PDF files."""

import posixpath
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

from typedrag.core.errors import InputError, TypedRAGError, first_line
from typedrag.core.extras import MissingExtra, require
from typedrag.files.text_files import drop_half_characters, open_text, parse_yaml
from typedrag.retrieval.index.html import read_html
from typedrag.retrieval.index.pdf import read_pdf
from typedrag.retrieval.index.splitting import Block, Document

_LONGEST_TITLE = 300
_LARGEST_PART = 50_000_000  # bytes that a part of a book may have: a zip file may claim any size
_FRONT_MATTER = re.compile(r"\s*(---|\+\+\+)[ \t]*\n(?![ \t]*\n)(.*?)\n(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
"""As Pandoc has it: a blank line after the first dashes makes them a rule."""
_FOOTNOTE = re.compile(r"^\[\^[^\]\n]+\]:", re.MULTILINE)
_KEYS = re.compile(r"(?:(?:[A-Za-z][\w-]*[ \t]*[:=]|[ \t#-]).*\n|\n)*\Z")
"""Lines that each have a key, go on with a value or are comments."""
_KEY = re.compile(r"^([A-Za-z][\w-]*)[ \t]*[:=](?:[ \t]+(.*?))?[ \t]*$", re.MULTILINE)
"""A key of front matter and its value on the same line."""


def read_document(path: Path) -> Document:
    """A file's title, by default its name without the ending, and its content."""
    try:
        document = READERS[path.suffix.lower()](path)
    except MissingExtra as error:
        raise MissingExtra(error.package, str(path)) from error
    except TypedRAGError:
        raise
    except (Exception, RecursionError) as error:  # readers raise errors of many kinds for broken files
        raise InputError(
            f"{path} cannot be read: {first_line(error)}", "Mend it, or leave it out: --skip-bad"
        ) from error
    title, content, left_out = document
    title = " ".join(drop_half_characters(title).split())[:_LONGEST_TITLE] or path.stem
    if isinstance(content, str):
        return Document(title, drop_half_characters(content), left_out)
    return Document(title, [b._replace(text=drop_half_characters(b.text)) for b in content], left_out)


def _read_text(path: Path) -> str:
    with open_text(path, newline=None) as file:
        return file.read()


def read_markdown(text: str) -> Document:
    """The title, from the front matter or else the first heading, and the blocks, still in Markdown."""
    from markdown_it import MarkdownIt

    metadata: Any = {}
    if match := _FRONT_MATTER.match(text):  # in YAML, TOML or what looks like them
        try:
            metadata = tomllib.loads(match[2]) if match[1] == "+++" else parse_yaml(match[2])
        except (ValueError, RecursionError):  # often a title that has a colon but no quotes
            metadata = dict(_KEY.findall(match[2])) if _KEYS.match(f"{match[2]}\n") else None
        if isinstance(metadata, dict):
            text = text[match.end() :]
        else:  # then all is text
            metadata = {}
    # a footnote of one word would count as a link's address, which is no text
    tokens = MarkdownIt("commonmark").enable("table").parse(_FOOTNOTE.sub(r"\\\g<0>", text))
    headings = (tokens[n + 1].content for n, token in enumerate(tokens) if token.type == "heading_open")
    title = metadata.get("title")
    blocks, lines = list[Block](), text.split("\n")
    for number, token in enumerate(tokens):
        if token.level or token.map is None or token.nesting < 0:
            continue
        source = lines[token.map[0] : token.map[1]]
        own = "\n".join(source).strip("\n")
        if token.type == "heading_open":
            if not token.markup.startswith("#"):  # it is underlined
                own = f"{'#' * int(token.tag[1:])} {tokens[number + 1].content}"
            blocks.append(Block(" ".join(own.split()), "heading"))
        elif token.type == "paragraph_open":
            blocks.append(Block(own))
        elif token.type == "table_open":
            blocks.append(Block("\n".join(source[2:]).strip("\n"), "lines", "\n".join(source[:2])))
        elif token.type == "fence":
            fence = token.markup + token.info.rstrip() if token.info else token.markup
            blocks.append(Block(token.content.rstrip("\n"), "lines", fence, token.markup))
        elif token.type == "html_block":
            blocks += read_html(own.encode(), whole=True).content  # type: ignore[arg-type]
        elif token.type != "hr":
            blocks.append(Block(own, "lines"))
    return Document(str(title) if isinstance(title, str | int | float) else next(headings, ""), blocks)


def _read_epub(path: Path) -> Document:
    require("lxml")
    from lxml import etree

    def part(name: str) -> bytes:
        with book.open(name) as file:
            data = file.read(_LARGEST_PART + 1)
        if len(data) > _LARGEST_PART:
            raise ValueError(f"{name} in it is larger than {_LARGEST_PART:,} bytes")
        return data

    def tree(name: str) -> Any:
        return etree.fromstring(part(name), etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))

    with ZipFile(path) as book:
        package = tree("META-INF/container.xml").xpath("string(//*[local-name()='rootfile']/@full-path)")
        root = tree(package)
        title = root.xpath("string(//*[local-name()='metadata']/*[local-name()='title'])")
        files = {item.get("id"): item.get("href", "") for item in root.xpath("//*[local-name()='item']")}
        pages = [files.get(item.get("idref"), "") for item in root.xpath("//*[local-name()='itemref']")]
        names = [posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(p))) for p in pages if p]
        return Document(title, [block for name in names for block in read_html(part(name), whole=True).content])  # type: ignore[misc]


def _read_docx(path: Path) -> Document:
    """A Word document's first heading and its blocks, read from the HTML that mammoth makes of it."""
    require("mammoth")
    import mammoth

    with path.open("rb") as file:
        page = mammoth.convert_to_html(file, ignore_empty_paragraphs=True, convert_image=lambda image: []).value
    _, content, _ = read_html(page.encode(), whole=True)
    headings = (block.text for block in content if isinstance(block, Block) and block.kind == "heading")
    return Document(next(headings, ""), content)


def _read_pptx(path: Path) -> Document:
    """A presentation's title, by default that of its first slide, and its slides with their notes."""
    require("pptx")
    from pptx import Presentation

    slides, blocks = Presentation(str(path)), list[Block]()
    for slide in slides.slides:
        title = slide.shapes.title
        if title is not None and title.text_frame.text.strip():
            blocks.append(Block(" ".join(title.text_frame.text.split()), "heading"))
        for shape in slide.shapes:
            if title is None or shape.shape_id != title.shape_id:
                blocks += _shape_blocks(shape)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            blocks.append(Block(slide.notes_slide.notes_text_frame.text))
    named = slides.core_properties.title or ""
    headings = (block.text for block in blocks if block.kind == "heading")
    return Document(next(headings, "") if named in ("", "PowerPoint Presentation") else named, blocks)


def _shape_blocks(shape: Any) -> Iterator[Block]:
    for inner in getattr(shape, "shapes", ()):  # of a group
        yield from _shape_blocks(inner)
    if shape.has_text_frame:
        yield from (Block(p.text.replace("\v", " ")) for p in shape.text_frame.paragraphs if p.text.strip())
    if getattr(shape, "has_table", False):
        header, *rows = ["\t".join(" ".join(cell.text.split()) for cell in row.cells) for row in shape.table.rows]
        yield Block("\n".join(rows), "lines", header)
    if getattr(shape, "has_chart", False):
        chart = shape.chart
        if chart.has_title and chart.chart_title.has_text_frame:
            yield Block(chart.chart_title.text_frame.text)
        for plot in chart.plots:
            header = "\t".join(["", *(series.name for series in plot.series)])
            columns = [map(str, plot.categories), *(map(str, series.values) for series in plot.series)]
            yield Block("\n".join("\t".join(row) for row in zip(*columns, strict=False)), "lines", header)


READERS: dict[str, Callable[[Path], Document]] = {
    ".txt": lambda path: Document("", _read_text(path)),
    ".md": lambda path: read_markdown(_read_text(path)),
    ".html": lambda path: read_html(path.read_bytes()),
    ".htm": lambda path: read_html(path.read_bytes()),
    ".pdf": read_pdf,
    ".docx": _read_docx,
    ".pptx": _read_pptx,
    ".epub": _read_epub,
}
"""The reader of each file ending."""
