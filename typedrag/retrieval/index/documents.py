"""Readers of documents: the title and the blocks of text, HTML, Markdown, EPUB, Word, PowerPoint and PDF files."""

import posixpath
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

import yaml

from typedrag.core.errors import InputError, TypedRAGError, first_line
from typedrag.core.extras import MissingExtra, require
from typedrag.files.text_files import drop_half_characters, open_text
from typedrag.retrieval.index.pdf import read_pdf
from typedrag.retrieval.index.splitting import Block, Document

_LONGEST_TITLE = 300
_LARGEST_PART = 50_000_000  # bytes that a part of a book may have: a zip file may claim any size
_FRONT_MATTER = re.compile(r"\s*(---|\+\+\+)[ \t]*\n(?![ \t]*\n)(.*?)\n(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
"""As Pandoc has it: a blank line after the first dashes makes them a rule."""
_KEYS = re.compile(r"(?:(?:[A-Za-z][\w-]*[ \t]*[:=]|[ \t#-]).*\n|\n)*\Z")
"""Lines that each have a key, go on with a value or are comments."""
_KEY = re.compile(r"^([A-Za-z][\w-]*)[ \t]*[:=](?:[ \t]+(.*?))?[ \t]*$", re.MULTILINE)
"""A key of front matter and its value on the same line."""
_INLINE = frozenset(
    "a abbr b bdi bdo big cite code data del dfn em font hi i ins kbd mark q ref s samp small span strike strong sub"
    " sup time tt u var wbr".split()
)
"""Elements that do not separate words, in HTML and in trafilatura's trees; all others do."""
_HEADINGS = frozenset("h1 h2 h3 h4 h5 h6 head".split())
_ROWS, _CELLS = frozenset({"tr", "row"}), frozenset({"td", "th", "cell"})
_NO_TEXT = (
    "script style noscript template title nav aside footer dialog svg select datalist textarea button iframe object"
    " canvas audio video"
).split()
_ROLES = "dialog alertdialog navigation complementary contentinfo banner search".split()
_BOILERPLATE = re.compile(
    r"(?i)(?:^|[\s_-])(?:cookies?|consent|gdpr|newsletter|navbar|breadcrumbs?|sidebar|footer|popup|modal)(?:$|[\s_-])"
)
_HIDDEN = re.compile(r"(?i)display\s*:\s*none|visibility\s*:\s*hidden")
_SMALL = 1_000  # characters of a page below which trafilatura is not asked: too few to tell an article by


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
    title = " ".join(drop_half_characters(title).split())[:_LONGEST_TITLE]
    if isinstance(content, str):
        return Document(title or path.stem, drop_half_characters(content))
    return Document(title or path.stem, [b._replace(text=drop_half_characters(b.text)) for b in content])


def _read_text(path: Path) -> str:
    with open_text(path, newline=None) as file:
        return file.read()


def read_html(data: bytes) -> Document:
    """A page's title and the blocks of its article: the one that it marks, the one trafilatura finds, or all of it.

    Navigation around it and hidden parts are left out.
    """
    require("bs4", "lxml", "trafilatura")
    from bs4.dammit import UnicodeDammit
    from lxml import etree, html

    markup = UnicodeDammit(data, is_html=True).unicode_markup or ""
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    page = etree.fromstring(markup.replace("\0", "").encode(), parser) if markup.strip() else None
    if page is None:
        return Document("", [])
    titles = page.xpath("//title[not(ancestor::svg)] | //h1")
    title = next((" ".join(_text(t).split()) for t in sorted(titles, key=lambda t: t.tag == "h1")), "")
    _clean(page)
    marked = page.xpath("//main | //*[@role='main']") or page.xpath("//article")
    articles = [element for element in marked if not any(other in marked for other in element.iterancestors())]
    blocks = [block for article in articles for block in html_blocks(article)]
    if not blocks and (size := len(" ".join(_text(page).split()))) >= _SMALL:
        import trafilatura

        extraction = trafilatura.bare_extraction(page, include_comments=False, favor_recall=True)
        body = getattr(extraction, "body", None)
        if body is not None and len(_text(body)) > size / 10:
            blocks = list(html_blocks(body))
    return Document(title, blocks or list(html_blocks(page)))


def html_blocks(element: Any) -> Iterator[Block]:
    words: list[str] = []

    def prose() -> Iterator[Block]:
        text = " ".join("".join(words).split())
        words.clear()
        if text:
            yield Block(text)

    def walk(parent: Any) -> Iterator[Block]:
        words.append(parent.text or "")
        for child in parent:
            tag = child.tag if isinstance(child.tag, str) else ""
            block = _whole_block(child, tag)
            if block is not None:
                yield from prose()
                if block.text.strip() or block.opening:
                    yield block
            elif tag in _INLINE:
                yield from walk(child)
            elif tag in ("br", "lb"):
                words.append(" ")
            elif tag:
                yield from prose()
                yield from walk(child)
                yield from prose()
            words.append(child.tail or "")

    yield from walk(element)
    yield from prose()


def _whole_block(element: Any, tag: str) -> Block | None:
    if tag in _HEADINGS:
        return Block(" ".join(_text(element).split()), "heading")
    if tag == "pre" or (tag == "code" and "\n" in _text(element)):
        return Block(_text(element).strip("\n"), "lines")
    if tag == "table":
        rows = [row for row in element.iter() if row.tag in _ROWS]
        cells = [[" ".join(_text(cell).split()) for cell in row if cell.tag in _CELLS] for row in rows]
        if max(map(len, cells), default=0) < 2 or any(e.tag == "table" for e in element.iterdescendants()):
            return None  # it is for the layout
        has_header = all(cell.tag == "th" or cell.get("role") == "head" for cell in rows[0] if cell.tag in _CELLS)
        lines = ["\t".join(row) for row in cells if any(row)]
        return Block("\n".join(lines[has_header:]), "lines", lines[0] if has_header and lines else "")
    return None


def _text(element: Any) -> str:
    parts = [element.text or ""]
    for child in element:
        if isinstance(child.tag, str):
            inner = _text(child)
            parts.append(inner if child.tag in _INLINE else "\n" if child.tag == "br" else f" {inner} ")
        parts.append(child.tail or "")
    return "".join(parts)


def _clean(page: Any) -> None:
    """Remove elements that are no part of an article, and hidden ones."""
    for element in list(page.iter()):
        if element.getparent() is None or not isinstance(element.tag, str):
            continue
        names = f"{element.get('id', '')} {element.get('class', '')}"
        in_article = element.tag == "header" and any(e.tag in ("article", "main") for e in element.iterancestors())
        if (
            element.tag in _NO_TEXT
            or (element.tag == "header" and not in_article)
            or element.get("role") in _ROLES
            or element.get("hidden") is not None
            or _HIDDEN.search(element.get("style", ""))
            # a name may also say that the whole page has a sidebar
            or (
                _BOILERPLATE.search(names)
                and not element.xpath("descendant-or-self::*[self::main|self::article|self::h1]")
            )
        ):
            parent, before = element.getparent(), element.getprevious()
            tail = f" {element.tail or ''}"
            if before is not None:
                before.tail = (before.tail or "") + tail
            else:
                parent.text = (parent.text or "") + tail
            parent.remove(element)


def read_markdown(text: str) -> Document:
    """The title, from the front matter or else the first heading, and the blocks, still in Markdown."""
    from markdown_it import MarkdownIt

    metadata: Any = {}
    if match := _FRONT_MATTER.match(text):  # in YAML, TOML or what looks like them
        try:
            metadata = tomllib.loads(match[2]) if match[1] == "+++" else yaml.safe_load(match[2])
        except (ValueError, RecursionError, yaml.YAMLError):  # often a title that has a colon but no quotes
            metadata = dict(_KEY.findall(match[2])) if _KEYS.match(f"{match[2]}\n") else None
        if isinstance(metadata, dict):
            text = text[match.end() :]
        else:  # then all is text
            metadata = {}
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    headings = (tokens[n + 1].content for n, token in enumerate(tokens) if token.type == "heading_open")
    title = metadata.get("title")
    blocks, lines = list[Block](), text.split("\n")
    for token in tokens:
        if token.level or token.map is None or token.nesting < 0:
            continue
        source = lines[token.map[0] : token.map[1]]
        own = "\n".join(source).strip("\n")
        if token.type == "heading_open":
            blocks.append(Block(" ".join(own.split()), "heading"))
        elif token.type == "paragraph_open":
            blocks.append(Block(own))
        elif token.type == "table_open":
            blocks.append(Block("\n".join(source[2:]).strip("\n"), "lines", "\n".join(source[:2])))
        elif token.type == "fence":
            fence = token.markup + token.info.rstrip() if token.info else token.markup
            blocks.append(Block(token.content.rstrip("\n"), "lines", fence, token.markup))
        elif token.type == "html_block":
            blocks += read_html(own.encode()).content  # type: ignore[arg-type]
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
        return Document(title, [block for name in names for block in read_html(part(name)).content])  # type: ignore[misc]


def _read_docx(path: Path) -> Document:
    """A Word document's first heading and its blocks, read from the HTML that mammoth makes of it."""
    require("mammoth")
    import mammoth

    with path.open("rb") as file:
        page = mammoth.convert_to_html(file, ignore_empty_paragraphs=True, convert_image=lambda image: []).value
    _, content = read_html(f"<main>{page}</main>".encode())
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
