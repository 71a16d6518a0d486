"""Word documents and PowerPoint slides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typedrag.core.extras import require
from typedrag.retrieval.index.documents.html import read_html
from typedrag.retrieval.index.splitting import Block, Document


def read_docx(path: Path) -> Document:
    """A Word document's first heading and its blocks, read from the HTML that mammoth makes of it."""
    require("mammoth")
    import mammoth

    with path.open("rb") as file:
        page = mammoth.convert_to_html(file, ignore_empty_paragraphs=True, convert_image=lambda image: []).value
    _, content = read_html(f"<main>{page}</main>".encode())
    headings = (block.text for block in content if isinstance(block, Block) and block.kind == "heading")
    return Document(next(headings, ""), content)


def read_pptx(path: Path) -> Document:
    """A presentation's title, by default that of its first slide, and its slides with their notes."""
    require("pptx")
    from pptx import Presentation

    slides = Presentation(str(path))
    blocks = [block for slide in slides.slides for block in _slide(slide)]
    headings = (block.text for block in blocks if block.kind == "heading")
    title = slides.core_properties.title or ""
    return Document(next(headings, "") if title in ("", "PowerPoint Presentation") else title, blocks)


def _slide(slide: Any) -> Iterator[Block]:
    title = slide.shapes.title
    if title is not None and title.text_frame.text.strip():
        yield Block(" ".join(title.text_frame.text.split()), "heading")
    for shape in slide.shapes:
        if title is None or shape.shape_id != title.shape_id:
            yield from _shape(shape)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        yield Block(slide.notes_slide.notes_text_frame.text)


def _shape(shape: Any) -> Iterator[Block]:
    for inner in getattr(shape, "shapes", ()):  # of a group
        yield from _shape(inner)
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
