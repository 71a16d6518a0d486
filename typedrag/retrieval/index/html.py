"""HTML pages: the blocks of their content, and the parts that are left out of it."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from typedrag.core.extras import require
from typedrag.retrieval.index.splitting import Block, Document, LeftOut

_INLINE = frozenset(
    "a abbr b bdi bdo big button cite code data del dfn em font hi i img ins kbd label mark mjx-container"
    " mjx-assistive-mml mjx-math nobr q rp s samp small span strike strong sub sup time tt u var wbr".split()
)
"""Elements that do not separate words; all others do."""
_HEADINGS = frozenset("h1 h2 h3 h4 h5 h6 summary dt".split())
"""Headings, and the questions and terms that stay with what is below them."""
_NO_TEXT = (
    "script style noscript template title svg select datalist textarea iframe object canvas audio video rp"
).split()
_ROLES = {
    "navigation": "nav", "complementary": "aside", "contentinfo": "footer", "banner": "header", "dialog": "dialog",
    "alertdialog": "dialog", "search": "search",
}  # fmt: skip
"""The elements that roles stand for."""
_AROUND = re.compile(
    r"(?i)(?:^|[\s_-])(?:cookies?|consent|gdpr|newsletter|navbar|breadcrumbs?|sidebar|footer|popup|modal)(?:$|[\s_-])"
)
"""Names of what stands around the content of pages that do not mark it."""
_CONTROL = re.compile(r"(?i)accordion|collaps|toggle|panel|tab-?pane|tab-?content|expand|answer")
"""Names of what a reader opens and closes."""
_TWIN = re.compile(r"(?i)katex-html|MathJax_Preview")
"""Names of a formula's drawing, which stands beside its MathML."""
_HIDDEN = re.compile(r"(?i)display\s*:\s*none|visibility\s*:\s*hidden")
_MENU = 10  # links without other text in a list of a page that does not mark its content: fewer may be a list of works
_MOST_CELLS = 50  # columns that a cell spans at most; a page may say any number
_REPEATED = 200  # characters of a cell at most that is repeated in the rows that it spans


def read_html(data: bytes, *, whole: bool = False) -> Document:
    """A page's title, the blocks of its content, and what was left out.

    The content is what the page marks as `main` or as articles; what it holds is text, whatever it is called. Of a page
    that marks none, all is content but menus, headers and footers, and what is called like a sidebar or a dialog of
    cookies. What nobody can see or open is left out. `whole` says that all of it is content, as the pages of books are.
    """
    require("bs4", "lxml")
    from bs4.dammit import UnicodeDammit
    from lxml import etree, html

    markup = UnicodeDammit(data, is_html=True).unicode_markup or ""
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    page = etree.fromstring(markup.replace("\0", "").encode(), parser) if markup.strip() else None
    if any(error.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT for error in parser.error_log):
        raise ValueError("its elements are nested more than 256 deep")  # libxml2 would drop the rest of the page
    if page is None:
        return Document("", [])
    titles = sorted(page.xpath("//title[not(ancestor::svg)] | //h1"), key=lambda element: element.tag == "h1")
    for element in list(page.iter(*_NO_TEXT)):
        _take_out(element)
    mains = page.xpath("//main | //*[@role='main']")
    marked = [page] if whole else mains or page.xpath("//article")
    among = set(marked)
    contents = [element for element in marked if among.isdisjoint(element.iterancestors())]
    if contents and not mains and 2 * sum(map(_size, contents)) < _size(page):
        contents = []  # the articles are not what the page is about
    parts = [part for content in contents for part in _clean(content, marked=True)]
    blocks = [block for content in contents for block in html_blocks(content)]
    if blocks:
        for content in contents:
            if content is not page:
                _take_out(content)
        parts += [] if whole else [page]
    else:
        parts += _clean(page, marked=whole)
        blocks = list(html_blocks(page))
    left_out = [LeftOut(" ".join(_text(part).split()), _size(part)) for part in parts]
    title = next((" ".join(_text(element).split()) for element in titles), "")
    return Document(title, blocks, [part for part in left_out if part.text])


def _clean(content: Any, *, marked: bool) -> Iterator[Any]:
    """Take the elements out that are not content, and yield those that hold more than signs."""
    opened = {
        element.get(name, "").lstrip("#")
        for element in content.iter()
        for name in ("aria-controls", "data-target", "data-bs-target")
    } - {""}
    stack = [content]
    while stack:
        element = stack.pop()
        if element is content:
            stack.extend(reversed(element))
        elif _is_sign(element):
            _take_out(element)
        elif _is_apart(element, opened) or not (marked or _is_content(element)):
            _take_out(element)
            yield element
        else:
            stack.extend(reversed(element))


def _is_sign(element: Any) -> bool:
    """A link to its own heading, as `¶`, or to an editor; numbers of lines; the drawing of a formula."""
    tag, text, names = element.tag, (element.text or "").strip(), element.get("class", "")
    if tag == "a":
        return element.get("href", "").startswith("#") and (text in ("¶", "#", "§", "🔗") or "headerlink" in names)
    return (
        "editsection" in names
        or (tag in ("td", "span") and "linenos" in names.split())
        or (element.get("aria-hidden") == "true" and (tag in ("mjx-math", "nobr") or bool(_TWIN.search(names))))
        or "MathJax_Preview" in names
        or (tag == "span" and " ".join(_text(element).lower().split()) == "[edit]" and len(element) < 4)
    )


def _is_apart(element: Any, opened: set[str]) -> bool:
    """True of an element that is no text wherever it stands: a dialog, a menu, a button, or hidden for good."""
    kind = _kind(element)
    if kind == "nav":  # of other pages, and not a table of this one's contents
        return _size(element) < 0.2 * len(_text(element)) and not element.xpath(".//a[starts-with(@href, '#')]")
    if kind in ("dialog", "search"):
        return True
    if element.tag == "button":
        return not (
            any(e.tag in _HEADINGS for e in element.iterancestors())
            or not {"aria-controls", "aria-expanded", "data-target", "data-bs-target"}.isdisjoint(element.keys())
            or _CONTROL.search(_names(element))
            or len(_text(element).split()) > 3  # a question, and not what the button does
        )
    hidden = element.get("hidden") not in (None, "until-found") or _HIDDEN.search(element.get("style", ""))
    if not hidden or element.tag == "math" or element.find(".//math") is not None:
        return False
    before = element.getprevious()
    return not (
        opened & {element.get("id")}
        or element.get("role") in ("tabpanel", "region")
        or _CONTROL.search(_names(element))
        or any(e.tag == "details" for e in element.iterancestors())
        or (before is not None and any(e.tag == "button" or e.get("aria-expanded") for e in before.iter()))
    )


def _is_content(element: Any) -> bool:
    """True of an element of a page that marks no content unless its kind or its name says that it is none."""
    kind, names = _kind(element), _names(element)
    if any(e.tag in ("article", "section") for e in element.iterancestors()):
        return True
    if kind in ("nav", "footer"):
        return False
    if kind == "header":  # a page's own has its title, that of the site has none
        return element.find(".//h1") is not None
    if kind == "aside":
        return element.getparent().find("p") is not None
    if kind in ("ul", "ol"):
        return len(element.findall(".//a")) < _MENU or _size(element) > 0
    if not _AROUND.search(names) or element.xpath("descendant-or-self::*[self::main or self::article or self::h1]"):
        return True
    heading = next(element.iter("h2", "h3", "h4", "h5", "h6"), None)  # a section is called as its heading is
    return heading is not None and re.sub(r"\W+", "-", _text(heading).lower()).strip("-") in names.lower().split()


def _kind(element: Any) -> str:
    return _ROLES.get(element.get("role", ""), element.tag)


def _names(element: Any) -> str:
    return f"{element.get('id', '')} {element.get('class', '')}"


def _take_out(element: Any) -> None:
    """Put an empty element in the place of one, in constant time; the text behind it stays."""
    empty = element.makeelement("wbr" if element.tag in _INLINE else "hr")
    empty.tail, element.tail = element.tail, None
    element.getparent().replace(element, empty)


def _size(element: Any) -> int:
    """The characters of an element's text that are in no links and buttons."""
    size, stack = 0, [element]
    while stack:
        inner = stack.pop()
        size += len("".join((inner.text or "").split()))
        for child in inner:
            size += len("".join((child.tail or "").split()))
            if child.tag not in ("a", "button"):
                stack.append(child)
    return size


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
            block = _whole_block(child)
            if block is not None:
                yield from prose()
                if block.text.strip() or block.opening:
                    yield block
            elif (sign := _sign_text(child)) is not None:
                words.append(sign)
            elif child.tag in _INLINE:
                yield from walk(child)
            else:
                yield from prose()
                yield from walk(child)
                yield from prose()
            words.append(child.tail or "")

    yield from walk(element)
    yield from prose()


def _whole_block(element: Any) -> Block | None:
    tag = element.tag
    if tag in _HEADINGS and element.find(".//pre") is None:
        return Block(" ".join(_text(element).split()), "heading")
    if tag == "pre" or (tag == "code" and "\n" in _text(element)):
        return Block(_text(element).strip("\n"), "lines")
    if tag == "table":
        rows = list(element.iter("tr"))
        inner = any(e is not element for e in islice(element.iter("table", "pre"), 2))
        cells = [] if inner else _grid(rows)
        if max(map(len, cells), default=0) < 2:
            return None  # it is for the layout
        header = sum(1 for row in rows if row.getparent().tag == "thead")
        if not header and all(cell.tag == "th" for cell in rows[0] if cell.tag in ("td", "th")):
            header = 1
        caption = (" ".join(_text(caption).split()) for caption in element.findall("caption"))
        lines = ["\t".join(row) for row in cells]
        text, opening = ("\n".join(filter(str.strip, part)) for part in (lines[header:], [*caption, *lines[:header]]))
        return Block(text, "lines", opening)
    return None


def _grid(rows: Sequence[Any]) -> list[list[str]]:
    """The texts of a table's cells: one that spans rows is in each, and one that spans columns has blanks behind it."""
    grid, spanning = list[list[str]](), dict[int, tuple[int, str]]()
    for row in rows:
        texts = list[str]()

        for cell in [*(cell for cell in row if cell.tag in ("td", "th")), None]:
            while len(texts) in spanning:
                left, text = spanning.pop(len(texts))
                if left > 1:
                    spanning[len(texts)] = (left - 1, text)
                texts.append(text)
            if cell is None:
                continue
            text = " ".join(_text(cell).split())
            rowspan, colspan = (_whole_number(cell.get(name)) for name in ("rowspan", "colspan"))
            for number in range(min(colspan, _MOST_CELLS)):
                if rowspan > 1 and len(text) <= _REPEATED:
                    spanning[len(texts)] = (rowspan - 1, "" if number else text)
                texts.append("" if number else text)
        grid.append(texts)
    return grid


def _whole_number(value: str | None) -> int:
    return int(value) if value and value.isdecimal() and len(value) < 6 else 1


def _text(element: Any) -> str:
    if (sign := _sign_text(element)) is not None:
        return sign
    parts = [element.text or ""]
    for child in element:
        inner = _text(child)
        parts += [inner if child.tag in _INLINE or _sign_text(child) is not None else f" {inner} ", child.tail or ""]
    return "".join(parts)


def _sign_text(element: Any) -> str | None:
    """The text of a line break, of a formula and of signs with their readings; None of any other element."""
    if element.tag in ("br", "wbr"):
        return "\n" if element.tag == "br" else ""
    if element.tag == "math":  # its source says more than its signs in a row
        source = next((e for e in element.iter("annotation") if "tex" in e.get("encoding", "").lower()), None)
        for annotation in list(element.iter("annotation", "annotation-xml")):
            if annotation is not source:
                _take_out(annotation)
        return " ".join(((source.text if source is not None else "") or "".join(element.itertext())).split())
    if element.tag == "ruby":
        readings = "".join(_text(reading) for reading in element.iter("rt"))
        signs = "".join([element.text or "", *(("" if e.tag == "rt" else _text(e)) + (e.tail or "") for e in element)])
        return f"{signs}({readings})" if readings.strip() else signs
    return None
