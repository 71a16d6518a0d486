"""Word documents, slides and EPUB books."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from tests.retrieval.index.test_sources import refusal, write
from typedrag.retrieval import read_passages

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def zipped(path: Path, files: dict[str, str]) -> Path:
    with ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_a_word_document_is_read_with_its_headings_and_tables(tmp_path):
    def paragraph(text: str, style: str = "") -> str:
        properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
        return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"

    def row(*cells: str) -> str:
        return f"<w:tr>{''.join(f'<w:tc>{paragraph(cell)}</w:tc>' for cell in cells)}</w:tr>"

    body = paragraph("Why bread rises", "Heading1") + paragraph("Yeast eats sugar.")
    body += f"<w:tbl>{row('Flour', 'Water')}{row('500 g', '350 g')}</w:tbl>"
    source = zipped(
        tmp_path / "bread.docx",
        {
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
            "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" '
            f'Type="{OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
            "word/styles.xml": f'<w:styles xmlns:w="{WORD}"><w:style w:type="paragraph" w:styleId="Heading1">'
            '<w:name w:val="heading 1"/></w:style></w:styles>',
        },
    )
    [passage] = read_passages([source])
    assert (passage.id, passage.title) == ("bread.docx#1", "Why bread rises")
    assert passage.text == "Why bread rises\nYeast eats sugar.\nFlour\tWater\n500 g\t350 g"


def test_slides_are_read_with_their_tables_charts_and_notes(tmp_path):
    slides = Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[1])
    slide.shapes.title.text = "Why bread rises"
    slide.placeholders[1].text = "Yeast eats sugar."
    table = slide.shapes.add_table(2, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
    for cell, text in zip(table.iter_cells(), ("Flour", "Water", "500 g", "350 g"), strict=True):
        cell.text = text
    slide.notes_slide.notes_text_frame.text = "Say it slowly."
    sales = CategoryChartData()
    sales.categories = ["Rye", "Wheat"]
    sales.add_series("Loaves", (12, 30))
    slide.shapes.add_chart(XL_CHART_TYPE.PIE, Inches(1), Inches(3), Inches(4), Inches(3), sales).chart.has_title = False
    slides.save(str(tmp_path / "talk.pptx"))
    [passage] = read_passages([tmp_path / "talk.pptx"])
    assert passage.title == "Why bread rises"
    lines = [
        "Why bread rises",
        "Yeast eats sugar.",
        "Flour\tWater",
        "500 g\t350 g",
        "\tLoaves",
        "Rye\t12.0",
        "Wheat\t30.0",
    ]
    assert passage.text.split("\n") == [*lines, "Say it slowly."]


def test_a_book_is_read_in_the_order_of_its_spine(tmp_path):
    source = zipped(
        tmp_path / "book.epub",
        {
            "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
            "OEBPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf"><metadata '
            'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>On Bread</dc:title></metadata><manifest>'
            '<item id="b" href="text/b%20b.xhtml"/><item id="a" href="text/a.xhtml"/></manifest>'
            '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>',
            "OEBPS/text/a.xhtml": '<?xml version="1.0" encoding="utf-8"?>'
            "<html><body><h1>One</h1><p>Yeast.</p></body></html>",
            "OEBPS/text/b b.xhtml": "<html><body><h1>Two</h1><p>Gas.</p></body></html>",
        },
    )
    [passage] = read_passages([source])
    assert (passage.title, passage.text) == ("On Bread", "One\nYeast.\nTwo\nGas.")


def test_a_broken_one_is_named(tmp_path):
    for name in ("a.docx", "b.pptx", "c.epub"):
        assert f"{name} cannot be read" in refusal(write(tmp_path / name, b"PK no zip"))
