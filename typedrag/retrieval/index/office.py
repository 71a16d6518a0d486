"""Word, PowerPoint and Excel files: text, tables, formulas, charts and diagrams in reading order."""

import io
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from typedrag.core.extras import require
from typedrag.retrieval.index.html import read_html
from typedrag.retrieval.index.splitting import TOOL_TITLE, Block, Document, LeftOut

_OLD_OFFICE = bytes.fromhex("D0CF11E0A1B11AE1")
_MAIN, _DRAWING, _CHART, _DIAGRAM, _MATH = (
    f"{{http://schemas.openxmlformats.org/{name}}}"
    for name in (
        "wordprocessingml/2006/main", "drawingml/2006/main", "drawingml/2006/chart", "drawingml/2006/diagram",
        "officeDocument/2006/math",
    )
)  # fmt: skip
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_COMPATIBLE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_SIGNS = (f"{_DRAWING}t", f"{_MATH}t", f"{_MAIN}t")
_BOXED = "{http://schemas.microsoft.com/office/word/2010/wordprocessingShape}txbx"
_STYLES = "p[style-name='Title'] => h1:fresh"


def read_docx(path: Path) -> Document:
    """A Word document's first heading and its blocks, read from the HTML that mammoth makes of it."""
    require("lxml", "mammoth")
    import mammoth

    _refuse_encrypted(path)
    with ZipFile(path) as package:
        page = mammoth.convert_to_html(
            _readable(package), style_map=_STYLES, ignore_empty_paragraphs=True, convert_image=lambda image: []
        ).value
        names = [n for n in package.namelist() if posixpath.basename(n).startswith(("header", "footer", "comments"))]
        left_out = [" ".join(_text(_tree(package.read(n))).split()) for n in names if n.endswith(".xml")]
        core = _tree(package.read("docProps/core.xml")) if "docProps/core.xml" in package.namelist() else None
    _, content, _ = read_html(page.encode(), whole=True)
    named = core.findtext("{http://purl.org/dc/elements/1.1/}title") or "" if core is not None else ""
    headings = (block.text for block in content if isinstance(block, Block) and block.kind == "heading")
    parts = [LeftOut(text, len("".join(text.split()))) for text in left_out if text]
    return Document(next(headings, "" if TOOL_TITLE.match(named) else named), content, parts)


def _readable(package: ZipFile) -> io.BytesIO:
    """A copy of a Word file without images, in which formulas, boxes, charts and fields are such as mammoth reads."""
    copy = io.BytesIO()
    with ZipFile(copy, "w") as written:
        for name in package.namelist():
            if "/media/" in name or "/embeddings/" in name:
                continue
            data = package.read(name)
            if posixpath.dirname(name) == "word" and posixpath.basename(name).startswith(("document", "foot", "end")):
                data = _simplified(_tree(data), _related(package, name))
            written.writestr(name, data)
    copy.seek(0)
    return copy


def _related(package: ZipFile, name: str) -> dict[str, Any]:
    """The trees of the charts and diagrams that a part of a package shows, by their relations' ids."""
    folder, file = posixpath.split(name)
    relations = f"{folder}/_rels/{file}.rels"
    if relations not in package.namelist():
        return {}
    drawn = [r for r in _tree(package.read(relations)) if r.get("Type", "").endswith(("/chart", "/diagramData"))]
    targets = {r.get("Id"): posixpath.normpath(posixpath.join(folder, r.get("Target", "")).lstrip("/")) for r in drawn}
    return {key: _tree(package.read(target)) for key, target in targets.items() if target in package.namelist()}


def _simplified(root: Any, related: dict[str, Any]) -> bytes:
    from lxml import etree

    _choose(root, _MAIN)
    for formula in list(root.iter(f"{_MATH}oMath")):
        _replace(formula, [_run(_text(formula))])
    for formula in list(root.iter(f"{_MATH}oMathPara")):
        _replace(formula, list(formula))
    for wrapper in list(root.iter(f"{_MAIN}fldSimple", f"{_MAIN}dir", f"{_MAIN}bdo")):
        _replace(wrapper, list(wrapper))
    for ruby in list(root.iter(f"{_MAIN}ruby")):
        _replace(ruby, [run for base in ruby.iter(f"{_MAIN}rubyBase") for run in base])
    for drawing in list(root.iter(f"{_MAIN}drawing")):
        boxed = [content for box in drawing.iter(_BOXED) for content in box]
        blocks = [block for key in _relation_ids(drawing) if key in related for block in _drawn(related[key])]
        if boxed or blocks:
            shown = etree.Element(f"{_MAIN}pict")
            shown.extend(boxed or [etree.fromstring(_word_content(blocks))])
            _replace(drawing, [shown])
    return etree.tostring(root)


def _word_content(blocks: Sequence[Block]) -> str:
    """Blocks as the content of a text box."""
    rows = [line.split("\t") for block in blocks for line in f"{block.opening}\n{block.text}".splitlines() if line]

    def cell(text: str) -> str:
        return f"<w:tc><w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p></w:tc>"

    table = "".join(f"<w:tr>{''.join(map(cell, row))}</w:tr>" for row in rows if len(row) > 1)
    text = "".join(f"<w:p><w:r><w:t>{escape(row[0])}</w:t></w:r></w:p>" for row in rows if len(row) == 1)
    table = f"<w:tbl>{table}</w:tbl>" if table else ""
    return f'<w:txbxContent xmlns:w="{_MAIN[1:-1]}">{text}{table}</w:txbxContent>'


def read_pptx(path: Path) -> Document:
    """A presentation's title, by default that of its first slide, and its slides with their notes."""
    require("pptx")
    from pptx import Presentation
    from pptx.enum.shapes import PP_PLACEHOLDER

    _refuse_encrypted(path)
    slides, blocks = Presentation(str(path)), list[Block]()
    for slide in slides.slides:
        _choose(slide.element, _DRAWING)
        title = slide.shapes.title
        if title is not None and _text(title.element).strip():
            blocks.append(Block(" ".join(_text(title.element).split()), "heading"))
        for shape in slide.shapes:
            number = shape.is_placeholder and shape.placeholder_format.type == PP_PLACEHOLDER.SLIDE_NUMBER
            if not number and (title is None or shape.shape_id != title.shape_id):
                blocks += _shape_blocks(shape, slide.part)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            blocks.append(Block(slide.notes_slide.notes_text_frame.text))
    named = slides.core_properties.title or ""
    headings = (block.text for block in blocks if block.kind == "heading")
    return Document(next(headings, "") if TOOL_TITLE.match(named) else named or next(headings, ""), blocks)


def _shape_blocks(shape: Any, slide: Any) -> Iterator[Block]:
    for inner in getattr(shape, "shapes", ()):  # of a group
        yield from _shape_blocks(inner, slide)
    if shape.has_text_frame:
        yield from _paragraphs(shape.element)
    if getattr(shape, "has_table", False):
        rows = ([_text(cell._tc) for cell in row.cells] for row in shape.table.rows)
        yield from table_blocks(rows)
    elif shape.element.tag.endswith("}graphicFrame"):
        for key in _relation_ids(shape.element):
            if key in slide.rels:
                yield from _drawn(_tree(slide.related_part(key).blob))


def read_xlsx(path: Path) -> Document:
    """A workbook's sheets, each with its name and its rows; those after the first have its cells as their header."""
    require("openpyxl")
    from openpyxl import load_workbook

    _refuse_encrypted(path)
    book, blocks = load_workbook(path, read_only=True, data_only=True), list[Block]()
    try:
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # some programs write wrong ones
            rows = (["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True))
            if cells := list(table_blocks(rows)):
                blocks += [Block(sheet.title, "heading"), *cells]
        named = book.properties.title or ""
    finally:
        book.close()
    return Document("" if TOOL_TITLE.match(named) else named, blocks)


def table_blocks(rows: Iterable[Sequence[str]]) -> Iterator[Block]:
    """Yield the rows of a table as a block of lines, whose first one is its header."""
    lines = ("\t".join(" ".join(cell.split()) for cell in row).rstrip("\t") for row in rows)
    header, *others = [line for line in lines if line.strip()] or [""]
    if header:
        yield Block("\n".join(others), "lines", header)


def _refuse_encrypted(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(len(_OLD_OFFICE))
        if start != _OLD_OFFICE:
            return
        file.seek(0)
        encrypted = "EncryptedPackage".encode("utf-16-le") in file.read()
    raise ValueError("it is encrypted with a password" if encrypted else "it is of an Office before 2007")


def _tree(data: bytes) -> Any:
    from lxml import etree

    return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))


def _choose(root: Any, text: str) -> None:
    """Put in the place of alternatives the first that has text."""
    for alternatives in reversed(list(root.iter(f"{_COMPATIBLE}AlternateContent"))):
        versions = [v for v in alternatives if v.tag in (f"{_COMPATIBLE}Choice", f"{_COMPATIBLE}Fallback")]
        best = next((v for v in versions if _text(v).strip() or _relation_ids(v)), versions[-1] if versions else None)
        _replace(alternatives, [] if best is None else list(best))


def _replace(element: Any, others: Sequence[Any]) -> None:
    parent = element.getparent()
    place = parent.index(element)
    parent.remove(element)
    for number, other in enumerate(others):
        parent.insert(place + number, other)


def _run(text: str) -> Any:
    from lxml import etree

    run = etree.Element(f"{_MAIN}r")
    etree.SubElement(run, f"{_MAIN}t").text = text
    return run


def _text(element: Any) -> str:
    """The text of an element's paragraphs, with spaces between them."""
    parts = list[str]()
    for inner in element.iter(*_SIGNS, f"{_DRAWING}br", f"{_DRAWING}p", f"{_MAIN}p", f"{_MAIN}tab"):
        parts.append(inner.text or "" if inner.tag in _SIGNS else " ")
    return "".join(parts).removeprefix(" ")


def _paragraphs(element: Any) -> Iterator[Block]:
    for paragraph in element.iter(f"{_DRAWING}p"):
        if text := " ".join(_text(paragraph).split()):
            yield Block(text)


def _relation_ids(element: Any) -> list[str]:
    """The relations of an element to charts, and to the texts of diagrams."""
    charts = [chart.get(f"{_RELATION}id") for chart in element.iter(f"{_CHART}chart")]
    return [key for key in [*charts, *(e.get(f"{_RELATION}dm") for e in element.iter(f"{_DIAGRAM}relIds"))] if key]


def _drawn(tree: Any) -> Iterator[Block]:
    """Yield the titles of a chart and a table of its series, or the texts of a diagram."""
    if not tree.tag.startswith(_CHART):
        yield from _paragraphs(tree)
        return
    for title in tree.iter(f"{_CHART}title"):
        text = _text(title) or " ".join(value.text or "" for value in title.iter(f"{_CHART}v"))
        if text.strip():
            yield Block(" ".join(text.split()))
    names, labels, columns = list[str](), dict[int, str](), list[dict[int, str]]()
    for series in tree.iter(f"{_CHART}ser"):
        names.append(" ".join(v.text or "" for v in series.iterfind(f"{_CHART}tx//{_CHART}v")))
        columns.append(_points(series, "val", "yVal"))
        labels |= {key: text for key, text in _points(series, "cat", "xVal").items() if key not in labels}
    keys = sorted({key for column in (labels, *columns) for key in column})
    rows = [[labels.get(key, ""), *(column.get(key, "") for column in columns)] for key in keys]
    yield from table_blocks([["", *names], *rows] if any(names) or rows else [])


def _points(series: Any, *kinds: str) -> dict[int, str]:
    """The values of a series' points by their numbers; those of labels on several levels are joined."""
    points = dict[int, str]()
    for kind in kinds:
        for point in series.iterfind(f"{_CHART}{kind}//{_CHART}pt"):
            key, value = int(point.get("idx", 0)), point.findtext(f"{_CHART}v") or ""
            points[key] = f"{value} {points[key]}" if key in points else value
    return points
