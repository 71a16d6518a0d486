"""HTML pages: the article, without the navigation around it and hidden parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typedrag.core.extras import require
from typedrag.retrieval.index.splitting import Block, Document

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
_SMALL = 1_000
"""Characters of a page below which trafilatura is not asked: too few to tell an article by."""


def read_html(data: bytes) -> Document:
    """A page's title and the blocks of its article: the one that it marks, the one trafilatura finds, or all of it."""
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
    return Document(title, blocks or _found(page) or list(html_blocks(page)))


def html_blocks(element: Any) -> Iterator[Block]:
    """The blocks of an element's content."""
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
            block = _kept(child, tag)
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


def _kept(element: Any, tag: str) -> Block | None:
    """The block of a heading, a table or code; None of anything else."""
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
    """All text in an element, with spaces between the words of neighbouring blocks."""
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


def _found(page: Any) -> list[Block]:
    """The blocks of trafilatura's article; none for a small page, or if it finds little."""
    size = len(" ".join(_text(page).split()))
    if size < _SMALL:
        return []
    import trafilatura

    extraction = trafilatura.bare_extraction(page, include_comments=False, favor_recall=True)
    body = getattr(extraction, "body", None)
    return list(html_blocks(body)) if body is not None and len(_text(body)) > size / 10 else []
