"""Word documents, slides, workbooks and EPUB books: those of the benchmark of readers, and others made from them."""

import logging

import pytest
from lxml import etree
from openpyxl import Workbook
from pptx import Presentation

from benchmarks.documents import make_book, make_word, write_documents, zip_files
from tests.retrieval.index.test_sources import refusal, write
from typedrag.retrieval import read_passages


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    write_documents(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "title", "lines"),
    [
        ("word.docx", "Why bread rises", "Why bread rises|Yeast eats sugar.|Flour\tWater|500 g\t350 g"),
        ("book.epub", "On Bread", "One|Yeast.|Two|Gas."),
        (
            "slides.pptx",
            "Why bread rises",
            "Why bread rises|Yeast eats sugar.|Flour\tWater|500 g\t350 g|Say it slowly.|"
            "\tLoaves sold|Rye\t12|Wheat\t30",
        ),
    ],
)
def test_a_document_is_read_in_order_with_its_headings_tables_charts_and_notes(folder, name, title, lines):
    [passage] = read_passages([folder / name])
    assert (passage.id, passage.title) == (f"{name}#1", title)
    assert passage.text.split("\n") == lines.split("|")


MATHS = "http://schemas.openxmlformats.org/officeDocument/2006/math"
EQUATION = f'<m:oMath xmlns:m="{MATHS}"><m:r><m:t>E=mc²</m:t></m:r></m:oMath>'
COMPATIBLE = "http://schemas.openxmlformats.org/markup-compatibility/2006"


def text_of(path):
    return "\n".join(passage.text for passage in read_passages([path]))


def test_a_slide_keeps_its_formula_its_alternatives_and_the_titles_of_its_chart(folder, tmp_path):
    slides = Presentation(str(folder / "slides.pptx"))
    slides.core_properties.title = "PowerPoint-Präsentation"
    first, second = slides.slides
    body = first.placeholders[1]
    alternatives = etree.fromstring(
        f'<mc:AlternateContent xmlns:mc="{COMPATIBLE}"><mc:Choice Requires="a14"/><mc:Fallback/></mc:AlternateContent>'
    )
    body.element.addprevious(alternatives)
    alternatives[0].append(body.element)
    body.text_frame.paragraphs[0]._p.append(etree.fromstring(EQUATION))
    chart = next(shape.chart for shape in second.shapes if shape.has_chart)
    chart.has_title = True
    chart.chart_title.text_frame.text = "Sales of a year"
    chart.value_axis.has_title = True
    chart.value_axis.axis_title.text_frame.text = "Loaves"
    slides.save(str(tmp_path / "a.pptx"))
    assert next(read_passages([tmp_path / "a.pptx"])).title == "Why bread rises"
    text = text_of(tmp_path / "a.pptx")
    for words in ("Yeast eats sugar.E=mc²", "Sales of a year", "\nLoaves\n", "Rye\t12"):
        assert words in text


def test_a_word_document_keeps_formulas_fields_boxes_and_readings_once(tmp_path):
    files = make_word()
    box = "http://schemas.microsoft.com/office/word/2010/wordprocessingShape"
    content = "<w:txbxContent><w:p><w:r><w:t>A box.</w:t></w:r></w:p></w:txbxContent>"
    shape = f'<w:drawing><s:wsp xmlns:s="{box}"><s:txbx>{content}</s:txbx></s:wsp></w:drawing>'
    files["word/document.xml"] = files["word/document.xml"].replace(
        "<w:tbl>",
        f"<w:p><w:r><w:t>So </w:t></w:r>{EQUATION}<w:r><w:t> holds on </w:t></w:r>"
        '<w:fldSimple w:instr="DATE"><w:r><w:t>Monday</w:t></w:r></w:fldSimple></w:p>'
        f'<w:p><w:r><mc:AlternateContent xmlns:mc="{COMPATIBLE}"><mc:Choice Requires="wps">{shape}</mc:Choice>'
        f"<mc:Fallback><w:pict>{content}</w:pict></mc:Fallback></mc:AlternateContent></w:r></w:p>"
        "<w:p><w:r><w:ruby><w:rt><w:r><w:t>kan</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>漢</w:t></w:r></w:rubyBase></w:ruby>"
        "</w:r></w:p><w:tbl>",
        1,
    )
    zip_files(tmp_path / "a.docx", files)
    assert text_of(tmp_path / "a.docx").split("\n")[2:5] == ["So E=mc² holds on Monday", "A box.", "漢"]


def test_what_is_encrypted_is_refused_as_such(tmp_path):
    container = bytes.fromhex("D0CF11E0A1B11AE1") + b"\0" * 500
    for name in ("a.docx", "a.pptx", "a.xlsx"):
        locked = write(tmp_path / name, container + "EncryptedPackage".encode("utf-16-le"))
        assert f"{name} cannot be read: it is encrypted with a password" in refusal(locked)
        assert "it is of an Office before 2007" in refusal(write(tmp_path / name, container))
    files = make_book()
    files["META-INF/encryption.xml"] = (
        '<encryption xmlns:e="http://www.w3.org/2001/04/xmlenc#">'
        '<e:EncryptedData><e:EncryptionMethod Algorithm="ALGORITHM"/><e:CipherData>'
        '<e:CipherReference URI="OEBPS/a.xhtml"/></e:CipherData></e:EncryptedData></encryption>'
    )
    zip_files(tmp_path / "a.epub", files)
    assert "a.epub cannot be read: it is encrypted (DRM)" in refusal(tmp_path / "a.epub")
    font = files["META-INF/encryption.xml"].replace("ALGORITHM", "http://www.idpf.org/2008/embedding")
    zip_files(tmp_path / "b.epub", files | {"META-INF/encryption.xml": font.replace("a.xhtml", "a.otf")})
    assert text_of(tmp_path / "b.epub") == "One\nYeast.\nTwo\nGas."


def test_a_page_that_is_missing_or_wrongly_cased_does_not_refuse_a_book(tmp_path, caplog):
    files = make_book()
    page = "<html><body><header><h1>Two</h1><p>By Anna</p></header><aside>Mind it.</aside><p>Gas.</p></body></html>"
    files = {name: text for name, text in files.items() if not name.endswith("html")} | {"OEBPS/B.XHTML": page}
    zip_files(tmp_path / "a.epub", files)
    with caplog.at_level(logging.WARNING, logger="typedrag"):
        assert text_of(tmp_path / "a.epub") == "Two\nBy Anna\nMind it.\nGas."
    assert "a.epub: left out its page OEBPS/a.xhtml, which is not in it" in caplog.text


def test_a_workbook_is_read_sheet_by_sheet_with_its_headers(tmp_path):
    book = Workbook()
    book.active.title = "Doughs"
    for row in (["Flour", "Water"], ["rye", 350], [None, None], ["wheat", 300.5]):
        book.active.append(row)
    book.create_sheet("Empty")
    book.save(tmp_path / "a.xlsx")
    assert text_of(tmp_path / "a.xlsx") == "Doughs\nFlour\tWater\nrye\t350\nwheat\t300.5"


def test_a_broken_one_is_named(tmp_path):
    for name in ("a.docx", "b.pptx", "c.epub"):
        assert f"{name} cannot be read" in refusal(write(tmp_path / name, b"PK no zip"))
